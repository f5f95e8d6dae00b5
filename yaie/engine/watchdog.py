"""Notices a step that does not end: a kernel that waits for ever, a learner's loop without an exit.

Nothing can interrupt such a step. `AsyncEngine` declares the engine dead, whose process must then end
without waiting for the thread.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Watchdog:
    """Times the steps of one thread. It costs that thread two readings of the clock a step.

    limit: how many seconds a step may take; 0 for as long as it likes.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._began: float | None = None

    def timed(self, step: Callable[[], T]) -> T:
        """What the step returns. On the engine's thread."""
        self._began = time.monotonic()
        try:
            return step()
        finally:
            self._began = None

    async def overdue(self) -> None:
        """Returns when a step has taken longer than the limit; never without one.

        It wakes when the step that it found in progress would be overdue, so that it costs one look at
        a clock in each `limit` seconds.
        """
        while self.limit:
            began = self._began
            left = self.limit if began is None else began + self.limit - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)
        await asyncio.Event().wait()


def log_hang(thread: threading.Thread, limit: float) -> None:
    """A critical line that shows where the thread stands."""
    frame = sys._current_frames().get(thread.ident or 0)
    where = "".join(traceback.format_stack(frame)) if frame is not None else "(it has ended)"
    message = "a step has not ended within %g seconds: the engine is dead"
    # As `stack_info` would, if it could show the stack of another thread.
    logger.handle(
        logger.makeRecord(
            logger.name, logging.CRITICAL, __file__, 0, message, (limit,), None, sinfo=where
        )
    )
