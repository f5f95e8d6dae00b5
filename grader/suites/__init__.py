"""One suite of tests for each lab, run by `grader.worker`."""
