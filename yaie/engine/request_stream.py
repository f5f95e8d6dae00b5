"""What a coroutine holds while the engine works for it: the outputs of one submission, as they come.

Made by `AsyncEngine.submit`; lives on the event loop alone, so it needs no lock.
"""

import asyncio
import time
from collections.abc import Callable

from yaie.core.compat import Self
from yaie.core.request import Request, RequestOutput


class RequestStream:
    """An async iterator over the outputs of all requests of one submission, for one consumer.

    The position of an output's request in `requests` is the number of its choice. A consumer that is
    slower than the engine finds what piled up merged into one output for each request: what waits
    here is never more than the answer itself.

    submitted_at, first_output_at: when, on the clock of `time.perf_counter`.
    """

    def __init__(self, close: "Callable[[RequestStream], None]") -> None:
        """`close`: how to tell the engine that nobody wants the rest."""
        self.requests: list[Request] = []
        self.submitted_at = time.perf_counter()
        self.first_output_at: float | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._close = close
        self._unfinished = 1  # until `accept` says how many
        self._pending: dict[str, RequestOutput] = {}
        self._error: Exception | None = None
        self._wakeup = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the engine has nothing more to say; some of it may still wait to be taken."""
        return self._error is not None or self._unfinished == 0

    @property
    def has_started(self) -> bool:
        """Whether any of its requests has had its first turn."""
        return self.first_output_at is not None or any(
            request.scheduled_time is not None for request in self.requests
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        """The next output. Raises EngineDeadError or EngineUnavailableError if the engine ended, and
        QueueTimeoutError or RequestTimeoutError if it waited or ran for too long."""
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._unfinished == 0:
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._pending.pop(next(iter(self._pending)))

    async def aclose(self) -> None:
        """Want no more: requests that still run are aborted, between two steps."""
        self._close(self)

    # --- called by AsyncEngine ---

    def accept(self, requests: list[Request]) -> None:
        """The engine admitted these requests."""
        self.requests = requests
        self._unfinished = len(requests)
        if not self.admitted.done():  # it is cancelled when the caller went away meanwhile
            self.admitted.set_result(None)

    def put(self, output: RequestOutput) -> None:
        """One more output, merged with what the consumer has not taken yet."""
        if self._error is not None:  # it has been told that nothing more comes
            return
        self.first_output_at = self.first_output_at or time.perf_counter()
        waiting = self._pending.setdefault(output.request.request_id, output)
        if waiting is not output:
            waiting.text += output.text
            waiting.token_ids += output.token_ids
            waiting.finish_reason = output.finish_reason
        if output.finish_reason is not None:
            self._unfinished -= 1
        self._wakeup.set()

    def fail(self, error: Exception) -> None:
        """Nothing more will come; `error` is raised once what came before has been taken."""
        if not self.admitted.done():
            self.admitted.set_exception(error)
        self._error = self._error or error
        self._wakeup.set()
