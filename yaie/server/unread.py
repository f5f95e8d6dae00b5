"""Connections whose clients do not read: how long an answer may lie there."""

import asyncio

STALL_SECONDS = 30.0
"""A client that takes nothing for so long of what lies ready for it is cut off."""
LOOKS = 6
"""How often it is looked at meanwhile."""


class Unread:
    """Looks at all connections every now and then, for those whose clients do not read.

    While more is written than a client takes, a stream waits for it, so what lies there can only become
    less. Where the amount is the same for STALL_SECONDS, nothing was taken, and nothing written.
    """

    def __init__(self) -> None:
        self._seen: dict[asyncio.Transport, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, until `forget`."""
        self._seen[transport] = 0, 0
        if self._timer is None:
            self._timer = loop.call_later(STALL_SECONDS / LOOKS, self._look, loop)

    def forget(self, transport: asyncio.Transport) -> None:
        """It is closed."""
        self._seen.pop(transport, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for transport, (before, num_same) in list(self._seen.items()):
            size = transport.get_write_buffer_size()
            num_same = num_same + 1 if size == before > 0 else 0
            self._seen[transport] = size, num_same
            if num_same == LOOKS:
                transport.abort()
        if self._seen:
            self._timer = loop.call_later(STALL_SECONDS / LOOKS, self._look, loop)
