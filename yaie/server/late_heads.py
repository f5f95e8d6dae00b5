"""Connections on which the head of a request does not come: how long it may take."""

import asyncio
from typing import Protocol

LOOKS = 6
"""How often it is looked at meanwhile."""


class Awaiting(Protocol):
    """A connection, as it is looked at."""

    @property
    def awaits_head(self) -> object | None:
        """While a head is due: the same object from look to look. None otherwise."""
        ...

    def head_is_late(self) -> None:
        """Its time is over."""
        ...


class LateHeads:
    """Looks at all connections every now and then, for those whose head has been due for `seconds`. No
    request that comes in time has any work of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[Awaiting, tuple[object | None, float]] = {}  # what is, and since when
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: Awaiting, loop: asyncio.AbstractEventLoop) -> None:
        """It is open. From now on, until `forget`."""
        self._due[connection] = connection.awaits_head, loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / LOOKS, self._look, loop)

    def forget(self, connection: Awaiting) -> None:
        """It is closed."""
        self._due.pop(connection, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for connection, (before, since) in list(self._due.items()):
            due = connection.awaits_head
            if due is None or due is not before:
                self._due[connection] = due, now
            elif now - since >= self._seconds:
                connection.head_is_late()
        if self._due:
            self._timer = loop.call_later(self._seconds / LOOKS, self._look, loop)
