"""Before a lab is complete, the engine makes real steps on the part: its tokens are the reference's.

runs.py      an answer of the engine on the part, beside one on the reference
shallow.py   models for those parts that take long on a CPU, or want weights of another kind
ranks.py     lab 20, whose ranks are threads here
labs.py      what each lab is tried with

`grader/suites/test_in_the_engine.py` is the test, for all labs.
"""
