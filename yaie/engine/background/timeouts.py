"""Ends submissions that wait or run for too long. Called by `AsyncEngine`, on the event loop.

There and not on the engine's thread, so that a client is told in time though a step takes long.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from yaie.core.errors import QueueTimeoutError, RequestTimeoutError
from yaie.engine.background.rejections import Rejection, Rejections

if TYPE_CHECKING:
    from yaie.engine.background.streams import OpenStreams, RequestStream


def timeouts(
    streams: "OpenStreams", rejections: Rejections, queue_timeout: float, request_timeout: float
) -> "list[Timeout]":
    """Those of these streams. In seconds, 0 for no limit: queue_timeout, for a submission's first turn;
    request_timeout, for all of it. rejections: where to count what has waited too long."""

    def queued_too_long(stream: "RequestStream") -> None:
        streams.close(stream)
        rejections[Rejection.QUEUE_TIMEOUT] += 1
        stream.fail(QueueTimeoutError("The request has waited too long; try again later."))

    def ran_too_long(stream: "RequestStream") -> None:
        streams.close(stream)
        stream.fail(RequestTimeoutError("The request took too long; ask for fewer tokens."))

    found = []
    if queue_timeout:
        found.append(Timeout(queue_timeout, lambda stream: stream.has_started, queued_too_long))
    if request_timeout:
        found.append(Timeout(request_timeout, lambda stream: stream.is_over, ran_too_long))
    return found


class Timeout:
    """One limit that holds for every submission, counted from `RequestStream.submitted_at`.

    All have the same time to live, so the first that came is the first to be due, and one timer is
    enough for all of them.
    """

    def __init__(
        self,
        seconds: float,
        is_met: "Callable[[RequestStream], bool]",
        expire: "Callable[[RequestStream], None]",
    ) -> None:
        """is_met: whether a submission has done in time what it had to do. expire: ends one that has
        not."""
        self._seconds = seconds
        self._is_met = is_met
        self._expire = expire
        self._streams: dict[RequestStream, None] = {}  # in the order in which they came
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, stream: "RequestStream") -> None:
        """A submission has come."""
        self._streams[stream] = None
        if self._timer is None:
            self._wait_for(stream)

    def forget(self, stream: "RequestStream") -> None:
        """A submission is over. Harmless if it is not watched."""
        self._streams.pop(stream, None)

    def stop(self) -> None:
        """Nothing more will come."""
        if self._timer is not None:
            self._timer.cancel()
        self._streams.clear()

    def _wait_for(self, stream: "RequestStream") -> None:
        left = stream.submitted_at + self._seconds - time.perf_counter()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        due = time.perf_counter() - self._seconds
        for stream in list(self._streams):
            if self._is_met(stream):
                self.forget(stream)
            elif stream.submitted_at > due:
                self._wait_for(stream)
                return
            else:
                self.forget(stream)
                self._expire(stream)
