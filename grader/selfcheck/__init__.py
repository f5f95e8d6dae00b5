"""The grader's own proof: what it must refuse it refuses, what is right passes, and mutants die.

`checks.py` says what is checked, `variants.py` makes the submissions, `mutants.py` and
`layout_mutants.py` the mutants that `killing.py` counts, `path.py` walks through a lab task by task;
`farm.py` grades many of them in copies of one warm process, which `forking.py` makes; `report.py` prints
and keeps the figures.
"""
