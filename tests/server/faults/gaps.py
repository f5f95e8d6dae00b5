"""How long the event loop of a server is kept from its next turn."""

import asyncio
import time
from types import TracebackType

from tests.server.conftest import LiveServer

BEAT = 0.002


class Gaps:
    """`with Gaps(server) as gaps:` longest: seconds between two turns of its loop meanwhile."""

    def __init__(self, server: LiveServer) -> None:
        self.longest = 0.0
        self._loop: asyncio.AbstractEventLoop = server.engine._loop
        self._runs = True

    def __enter__(self) -> "Gaps":
        self._loop.call_soon_threadsafe(self._beat, None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runs = False

    def _beat(self, before: float | None) -> None:
        now = time.perf_counter()
        if before is not None:
            self.longest = max(self.longest, now - before - BEAT)
        if self._runs:
            self._loop.call_later(BEAT, self._beat, now)
