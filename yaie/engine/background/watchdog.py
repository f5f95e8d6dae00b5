"""Notices a step that does not end: a kernel that waits for ever, a learner's loop without an exit.

Nothing can interrupt such a step. `EngineThread` declares the engine dead, and its process must then end
without waiting for the thread.
"""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Watchdog:
    """Times the steps of one thread.

    limit: how many seconds a step may take; 0 for as long as it likes. began: when the step in progress
    began, by `time.monotonic`, None between two steps; set by the thread.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.began: float | None = None
        self._over = threading.Event()

    def watch(self, overdue: Callable[[], None]) -> None:
        """Call `overdue` on a thread of its own, once, when a step has taken longer than the limit."""
        if self.limit:
            threading.Thread(
                target=self._watch, args=(overdue,), name="yaie-watchdog", daemon=True
            ).start()

    def stop(self) -> None:
        """There are no more steps."""
        self._over.set()

    def _watch(self, overdue: Callable[[], None]) -> None:
        """It wakes when the step that it found in progress would be overdue, which costs one look at a
        clock in each `limit` seconds."""
        left = self.limit
        while not self._over.wait(min(left, threading.TIMEOUT_MAX)):
            began = self.began
            left = self.limit if began is None else began + self.limit - time.monotonic()
            if left <= 0:
                overdue()
                return


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
