"""What control does for a model whose layers keep a state in place of keys and values.

`settings.py` refuses what does not go with such a model, and `room.py` says how many drafts its requests
get. The rest is there where prefixes are reused: lab 22's `Checkpoints` know which slots of the worker
hold a state behind which block, `tree.py` lets a request go on from such blocks alone, `stage.py`
decides where states are kept, and `awaited.py` knows for which of them others wait.
"""
