"""`make break`: wrong versions of a finished lab, and the learner's scripts that tell them apart.

draw.py       which ten known mistakes a round has
attacks.py    the learner's file: which functions it has, and what they may not use
template.py   that file as it is first written, with an example that runs
worker.py     the process that makes the calls on one version
outcome.py    what an attack came to, as JSON, and when two outcomes differ
running.py    versions run side by side, within limits
memo.py       what is known already, in .yaie/breaks
verdict.py    which attacks count, and which version each tells
report.py     the table
run.py        the command
mistake.py    `python -m grader mistake`: a new known mistake
"""
