"""Work counted in lines of Python run: unlike calls, they show a loop that scans."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_lines(work: Callable[[], Any]) -> int:
    """How many lines and calls `work` runs, those of what it calls included.

    What is done in C counts nothing, unless it calls back: give the objects a Python `__eq__`, and a
    search through a list of them counts as well.
    """
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event in ("call", "line")
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
