"""A failure that the files imported anew do not have is told as such."""

from grader.kit.anew import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
