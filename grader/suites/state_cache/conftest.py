"""Each task is graded by itself: no test calls what another task asks for."""

from grader.kit.anew import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
