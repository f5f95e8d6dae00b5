"""The submissions that an engine works on: which outputs are whose, and how long each may take.

Part of `AsyncEngine`; lives on its event loop.
"""

import asyncio
import logging
from collections.abc import Callable

from yaie.core.errors import QueueTimeoutError, RequestTimeoutError, YaieError
from yaie.core.output import RequestOutput, Submitted
from yaie.engine.background.messages import Stepped
from yaie.engine.background.rejections import Rejection, Rejections
from yaie.engine.background.request_stream import RequestStream
from yaie.engine.background.timeouts import Timeout

logger = logging.getLogger(__name__)


class OpenStreams:
    """Streams that are not over. empty: set while there is none."""

    def __init__(
        self,
        withdraw: Callable[[int], None],
        rejections: Rejections,
        queue_timeout: float = 0.0,
        request_timeout: float = 0.0,
    ) -> None:
        """withdraw: how to tell the engine that a submission's rest is not wanted. rejections: where to
        count what has waited too long. In seconds, 0 for no limit: queue_timeout, for a submission's
        first turn; request_timeout, for all of it."""
        self.empty = asyncio.Event()
        self.empty.set()
        self._withdraw = withdraw
        self._rejections = rejections
        self._streams: dict[int, RequestStream] = {}
        self._owners: dict[str, RequestStream] = {}  # of requests
        self._timeouts: list[Timeout] = []
        if queue_timeout:
            self._timeouts.append(
                Timeout(queue_timeout, lambda stream: stream.has_started, self._queued_too_long)
            )
        if request_timeout:
            self._timeouts.append(
                Timeout(request_timeout, lambda stream: stream.is_over, self._ran_too_long)
            )

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, number: int) -> RequestStream:
        """The stream of a submission that is being sent."""
        stream = RequestStream(number, self.close)
        self._streams[number] = stream
        self.empty.clear()
        for timeout in self._timeouts:
            timeout.watch(stream)
        return stream

    def close(self, stream: RequestStream) -> None:
        """Its caller wants no more. Harmless if it is over."""
        if not stream.is_over:
            self._withdraw(stream.number)
        self._remove(stream)

    def divert(self, request_id: str, take: Callable[[RequestOutput], bool]) -> None:
        """See `RequestStream.divert`. request_id: any of the stream's."""
        if (stream := self._owners.get(request_id)) is not None:
            stream.divert(take)

    def accept(
        self, number: int, requests: list[Submitted] | None, error: Exception | None
    ) -> None:
        """What the engine says to a submission, which may have been closed meanwhile."""
        if (stream := self._streams.get(number)) is None:
            return
        if error is not None:
            self._fail(stream, error)
        elif requests is not None:
            self._owners |= dict.fromkeys((request.request_id for request in requests), stream)
            stream.accept(requests)

    def put(self, step: Stepped) -> None:
        """Hand out what a step yielded."""
        for request_id in step.started:
            if (stream := self._owners.get(request_id)) is not None:
                stream.has_started = True
        for output in step.outputs:
            if (stream := self._owners.get(output.request_id)) is not None:
                try:
                    stream.put(output)
                except Exception:
                    logger.exception("what a step gave %s was lost", output.request_id)
                    self.close(stream)  # the others get theirs
                    stream.fail(YaieError("A part of the answer was lost in the server."))
                if output.finish_reason is not None and stream.is_over:
                    self._remove(stream)

    def fail_all(self, error: Exception) -> None:
        """The engine has ended, or is about to."""
        for stream in list(self._streams.values()):
            self._fail(stream, error)

    def stop(self) -> None:
        """No timer goes off any more."""
        for timeout in self._timeouts:
            timeout.stop()

    def _queued_too_long(self, stream: RequestStream) -> None:
        self.close(stream)
        self._rejections[Rejection.QUEUE_TIMEOUT] += 1
        stream.fail(QueueTimeoutError("The request has waited too long; try again later."))

    def _ran_too_long(self, stream: RequestStream) -> None:
        self.close(stream)
        stream.fail(RequestTimeoutError("The request took too long; ask for fewer tokens."))

    def _fail(self, stream: RequestStream, error: Exception) -> None:
        stream.fail(error)
        self._remove(stream)

    def _remove(self, stream: RequestStream) -> None:
        for timeout in self._timeouts:
            timeout.forget(stream)
        for request in stream.requests:
            self._owners.pop(request.request_id, None)
        self._streams.pop(stream.number, None)
        if not self._streams:
            self.empty.set()
