"""Those who watch the engine, on the event loop: a bounded queue of records for each.

Part of `AsyncEngine`. Who reads too slowly is cut off, and may begin again with a fresh snapshot. Its
place is free at once: its connection may stay stuck for as long as it likes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from yaie.core.errors import EngineOverloadedError
from yaie.engine.background.messages import Command, Recorded, Unwatch, Watch

MOST_WATCHERS = 16
MOST_RECORDS = 1000
"""That wait for one watcher."""


class Watchers:
    """Lives on the event loop. send: a command to the engine."""

    def __init__(self, send: Callable[[Command], None], number: Callable[[], int]) -> None:
        """number: makes one that no submission and no other watcher has."""
        self._send = send
        self._number = number
        self._queues: dict[int, asyncio.Queue[list[bytes] | None]] = {}
        self._begun: set[int] = set()

    async def watch(self, *, every: bool = False) -> AsyncIterator[list[bytes]]:
        """Header and snapshot, then records as they come, until the engine ends or the caller leaves.
        every: each step has one of its own.

        Raises EngineOverloadedError if too many watch.
        """
        if len(self._queues) >= MOST_WATCHERS:
            raise EngineOverloadedError(
                f"{MOST_WATCHERS} watch the engine already; try again later."
            )
        number = self._number()
        queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        self._queues[number] = queue
        self._send(Watch(number, every))
        try:
            while (lines := await queue.get()) is not None:
                yield lines
        finally:
            self._forget(number)

    def put(self, event: Recorded) -> None:
        """The engine has told this."""
        if event.number in self._queues:  # or it has left meanwhile
            self._begun.add(event.number)
        for number in list(self._begun) if event.number is None else [event.number]:
            if (queue := self._queues.get(number)) is None:
                continue
            if queue.qsize() >= MOST_RECORDS:
                self._forget(number)
                _end_now(queue)
            else:
                queue.put_nowait(event.lines)

    def _forget(self, number: int) -> None:
        """The place of this one is free. Harmless if it was before."""
        self._begun.discard(number)
        if self._queues.pop(number, None) is not None:
            self._send(Unwatch(number))

    def end(self) -> None:
        """The engine ends: so do all streams."""
        self._begun.clear()
        for queue in self._queues.values():
            queue.put_nowait(None)


def _end_now(queue: "asyncio.Queue[list[bytes] | None]") -> None:
    """Nothing is kept for a reader who may never come for it: what waits would hold memory."""
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
