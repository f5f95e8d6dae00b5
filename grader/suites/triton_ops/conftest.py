"""Where a launch does not hold what the kernel is asked for, that is what a failure is about."""

from collections.abc import Generator
from typing import Any

import pytest

from grader.kit import Fault, Mismatch
from grader.suites.triton_ops.covered import told_of
from grader.suites.triton_ops.launches import LATEST


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    LATEST.clear()
    try:
        return (yield)
    except Mismatch as error:
        if not isinstance(error, Fault):
            error.why = next(filter(None, map(told_of, LATEST)), error.why)
        raise
