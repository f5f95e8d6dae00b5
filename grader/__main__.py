"""`python -m grader`: grade, watch, hint, reset, upgrade, break, mistake, selfcheck, habits. Ctrl-C
ends it from its first import on."""

from yaie.system.interrupt import Interruptible

if __name__ == "__main__":
    with Interruptible():
        from grader.cli import main

        main()
