"""Where one of the part's functions gave what it must not, that is what a failure is about."""

from collections.abc import Generator
from typing import Any

import pytest

from grader.kit import Mismatch
from grader.suites.triton_paged_attention.helpers import forget, told


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    forget()
    try:
        return (yield)
    except Mismatch as error:
        said, rule = told()
        if said:
            error.problem = f"{said}. {error.problem[:1].upper()}{error.problem[1:]}"
            error.why = error.why if rule is None else rule
        raise
