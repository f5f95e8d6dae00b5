"""The submissions that an engine works on: which outputs are whose, and what a coroutine holds while the
engine works for it. Part of `AsyncEngine`; lives on its event loop alone, so it needs no lock.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from yaie.core.compat import Self
from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput, Submitted
from yaie.engine.background.messages import Stepped
from yaie.engine.background.timeouts import Timeout
from yaie.system.json_slices import free

logger = logging.getLogger(__name__)

TURN = 0.005
"""Seconds after which a consumer that finds outputs waiting lets others run."""
MOST_ENTRIES = 1024
"""Tokens or log-probabilities after which an output is large: so many of the latter take some 2 ms to
tell, and each merge copies what was merged before."""


class RequestStream:
    """An async iterator over the outputs of all requests of one submission, for one consumer.

    The position of an output's request in `requests` is the number of its choice. A consumer that is
    slower than the engine finds what piled up merged into one output for each request, or several where
    one would be too large to be told at once: what waits here is never more than the answer itself. One
    that is always busy gives others a turn between two outputs.

    number: of the submission. has_started: whether any of its requests has had its first turn.
    submitted_at, first_output_at: when, on the clock of `time.perf_counter`.
    """

    def __init__(self, number: int, close: "Callable[[RequestStream], None]") -> None:
        """`close`: how to tell the engine that the rest is not wanted."""
        self.number = number
        self.requests: list[Submitted] = []
        self.has_started = False
        self.submitted_at = time.perf_counter()
        self.first_output_at: float | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._close = close
        self._is_closed = False
        self._unfinished = 1  # until `accept` says how many
        self._pending: dict[str, list[RequestOutput]] = {}
        self._resumed = 0.0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[RequestOutput], bool] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come from the engine; some of it may still wait to be taken."""
        return self._is_closed or self._error is not None or self._unfinished == 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        """The next output; the end if the stream is closed. Raises EngineDeadError or
        EngineUnavailableError if the engine ended, and QueueTimeoutError or RequestTimeoutError if it
        waited or ran for too long."""
        if self._pending and time.perf_counter() - self._resumed > TURN:
            await asyncio.sleep(0)
            self._resumed = time.perf_counter()
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self.is_over:
                raise StopAsyncIteration
            # A future, not an event: that costs the loop half as much, once a token of each stream.
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._resumed = time.perf_counter()
        request_id = next(iter(self._pending))
        output, *rest = self._pending.pop(request_id)
        if rest:
            self._pending[request_id] = rest  # behind those of other requests
        return output

    async def aclose(self) -> None:
        """Want no more: requests that still run are aborted, between two steps. A reader in another
        task finds the end."""
        self._close(self)
        self._is_closed = True
        waiting = [output for outputs in self._pending.values() for output in outputs]
        if logprobs := [output.logprobs for output in waiting if output.logprobs]:
            free(logprobs)
        self._pending.clear()
        self._wake()

    def divert(self, take: Callable[[RequestOutput], bool]) -> None:
        """From now on offer each output to `take` first, if the consumer waits for one. True: it took
        it, and the consumer sleeps on. It must not raise: other streams' outputs come next."""
        self._take = take

    # --- called by OpenStreams ---

    def accept(self, requests: list[Submitted]) -> None:
        """The engine admitted these requests."""
        self.requests = requests
        self._unfinished = len(requests)
        if not self.admitted.done():  # it is cancelled when the caller went away meanwhile
            self.admitted.set_result(None)

    def put(self, output: RequestOutput) -> None:
        """One more output, merged with what the consumer has not taken yet."""
        take = self._take
        if take is not None and self._is_awaited and take(output):
            return  # not the first: `first_output_at` is known
        self.has_started = True
        self.first_output_at = self.first_output_at or time.perf_counter()
        waiting = self._pending.setdefault(output.request_id, [])
        if waiting and _num_entries(waiting[-1]) < MOST_ENTRIES:
            waiting[-1].merge(output)
        else:
            waiting.append(output)
        if output.finish_reason is not None:
            self._unfinished -= 1
        self._wake()

    @property
    def _is_awaited(self) -> bool:
        """Whether the consumer has taken all there was, and waits."""
        return self._waiter is not None and not self._waiter.done()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing more will come; `error` is raised once what came before has been taken."""
        if not self.admitted.done():
            self.admitted.set_exception(error)
        self._error = self._error or error
        self._wake()


def _num_entries(output: RequestOutput) -> int:
    """How many tokens or log-probabilities it tells."""
    if not output.logprobs:
        return len(output.token_ids)
    return len(output.logprobs) * (1 + len(output.logprobs[-1].top))


class OpenStreams:
    """Streams that are not over. empty: set while there is none. timeouts: that hold for all of them."""

    def __init__(self, withdraw: Callable[[int], None]) -> None:
        """withdraw: how to tell the engine that a submission's rest is not wanted."""
        self.empty = asyncio.Event()
        self.empty.set()
        self.timeouts: Sequence[Timeout] = ()
        self._withdraw = withdraw
        self._streams: dict[int, RequestStream] = {}
        self._owners: dict[str, RequestStream] = {}  # of requests

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, number: int) -> RequestStream:
        """The stream of a submission that is being sent."""
        stream = RequestStream(number, self.close)
        self._streams[number] = stream
        self.empty.clear()
        for timeout in self.timeouts:
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

    def _fail(self, stream: RequestStream, error: Exception) -> None:
        stream.fail(error)
        self._remove(stream)

    def _remove(self, stream: RequestStream) -> None:
        for timeout in self.timeouts:
            timeout.forget(stream)
        for request in stream.requests:
            self._owners.pop(request.request_id, None)
        self._streams.pop(stream.number, None)
        if not self._streams:
            self.empty.set()
