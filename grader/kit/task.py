"""Which task a test belongs to."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])


def task(id: str) -> Callable[[F], F]:
    """Mark a test as grading task `id`. Its docstring says what must hold, in a sentence."""

    def mark(test: F) -> F:
        if not (test.__doc__ or "").strip():
            raise ValueError(f"{test.__name__} has no docstring to quote when it fails")
        marked: F = pytest.mark.task(id)(test)
        return marked

    return mark
