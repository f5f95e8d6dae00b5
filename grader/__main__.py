"""`python -m grader`: grade, watch, hint, reset, selfcheck."""

from grader.cli import main

if __name__ == "__main__":
    main()
