"""What a grading looks like: to a person (`text.py`, `tables.py`), while it runs (`live.py`), and to a
program (`formats.py`)."""
