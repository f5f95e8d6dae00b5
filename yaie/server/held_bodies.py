"""Bodies that may be large: how many of their bytes are held at a time, and in which turn each is looked
through. Used by `BodyLimit`.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum

from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.json_limits import looked_through
from yaie.system.thread_niceness import step_back

SMALL = 1 << 14
"""Bytes of a body that is read on the event loop, 10 ms for the worst; larger ones are read beside it,
one at a time (`body_reader`). So few may always come: they are not counted among those that are held."""
LARGE = 1 << 18
"""Bytes of a body that is not looked through on the event loop. What comes after is read in turns."""
LARGE_BYTES_A_SECOND = 64 << 20
"""How fast all large bodies together are read, and then parsed. As fast as clients can send, a few of
them would take a core for half a second, and the steps of every stream would wait."""
BODIES_AT_ONCE = 8
"""So many of the largest bodies may be on their way at the same time, and as many bytes of bodies up to
LARGE beside them. What has been read is given back."""
KEPT_AT_ONCE = 32
"""The same of what requests in progress keep of large bodies that have been read: their texts."""

COME_BACK = {"Retry-After": "1"}
"""A header of what is refused for now."""

large_bodies = ThreadPoolExecutor(1, "yaie-bodies", step_back)
"""Looks through one after the other: together they would keep the engine from the interpreter."""


class RefusedError(Exception):
    """A body is refused with this status, message and headers."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.args_for_refuse = status, message, headers


def too_large(max_bytes: int) -> RefusedError:
    """Of a body with more bytes."""
    message = f"The body is larger than {max_bytes} bytes."
    return RefusedError(413, message, {"Connection": "close"})


class _Kind(IntEnum):
    """What the bytes of a body are counted among."""

    SMALL, MEDIUM, LARGE, READ = range(4)


@dataclass(slots=True)
class HeldBody:
    """What has come of a body."""

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    kind: _Kind = _Kind.SMALL


class HeldBodies:
    """Those of all requests in progress. Lives on the event loop."""

    def __init__(self, max_bytes: int, rejections: Rejections) -> None:
        """max_bytes: of one."""
        self._max_bytes = max_bytes
        self._rejections = rejections
        self._held = [0] * len(_Kind)
        self._looking = asyncio.Lock()  # through one of medium size at a time
        self._next_turn = 0.0  # of large bodies, by the loop's clock

    async def read(self, body: HeldBody, pieces: AsyncIterator[bytes], path: str) -> bytes:
        """All of a body that comes in these pieces, counted in `body`. Raises RefusedError."""
        try:
            async for piece in pieces:
                size = len(piece)
                body.chunks.append(piece)
                del piece
                self._take(body, size)
                if body.size > LARGE:
                    await self._wait_for_turn(size)
        except asyncio.CancelledError:  # the server ends without waiting for the rest
            raise RefusedError(503, "The server is shutting down.") from None
        if body.size <= SMALL:
            refusal = looked_through(body.chunks, path)
        elif body.size <= LARGE:
            async with self._looking:
                refusal = looked_through(body.chunks, path)
                await asyncio.sleep(0)  # the next one in another turn of the loop, after all others
        else:
            refusal = await asyncio.get_running_loop().run_in_executor(
                large_bodies, looked_through, body.chunks, path
            )
        if refusal is not None:
            raise RefusedError(400, refusal)
        if body.size > LARGE:
            await self._wait_for_turn(body.size)  # the application reads it in one go
        return body.chunks.pop()

    def give_back(self, body: HeldBody) -> None:
        """The bytes are gone. What was read of a large body stays with its request, and counts there."""
        if body.kind is not _Kind.READ:
            is_large = body.kind is _Kind.LARGE
            self._move(body, _Kind.READ, body.size if is_large else 0)

    def release(self, body: HeldBody) -> None:
        """The request has been answered."""
        self._held[body.kind] -= body.size

    def _take(self, body: HeldBody, size: int) -> None:
        """Count what has come. Raises RefusedError if it is too much."""
        self._move(body, _kind_of(body.size + size), body.size + size)
        if body.size > self._max_bytes:
            raise too_large(self._max_bytes)
        if body.kind is _Kind.SMALL:
            return
        # What is read keeps the place of what comes: or a body would be refused once it is there.
        kept = body.size + self._held[_Kind.READ] if body.kind is _Kind.LARGE else 0
        if (
            self._held[body.kind] > BODIES_AT_ONCE * self._max_bytes
            or kept > KEPT_AT_ONCE * self._max_bytes
        ):
            self._rejections[Rejection.MAX_BODY_BYTES] += 1
            raise RefusedError(503, "The server holds too many large requests.", COME_BACK)

    def _move(self, body: HeldBody, kind: _Kind, size: int) -> None:
        self._held[body.kind] -= body.size
        body.kind, body.size = kind, size
        self._held[body.kind] += body.size

    async def _wait_for_turn(self, num_bytes: int) -> None:
        """Wait until so many bytes of a large body, and those that came before, may have been read."""
        now = asyncio.get_running_loop().time()
        self._next_turn = max(self._next_turn, now) + num_bytes / LARGE_BYTES_A_SECOND
        await asyncio.sleep(self._next_turn - now)


def _kind_of(size: int) -> _Kind:
    if size <= SMALL:
        return _Kind.SMALL
    return _Kind.MEDIUM if size <= LARGE else _Kind.LARGE
