"""Work is counted in function calls, Python's and C's, not in seconds: the same on every machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], Any]) -> int:
    """How many function calls `work` makes. The garbage collector, which may call others, waits."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
