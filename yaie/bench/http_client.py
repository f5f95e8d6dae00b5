"""A client that costs next to nothing, to measure a server in another process beside it.

It keeps bytes as they come and reads them after the answer is complete: while the server works, it
does not.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """What came for one request. status: 0 if nothing did. times: of each piece, `time.perf_counter`."""

    sent: float = 0.0
    raw: bytes = b""
    times: list[float] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1]) if self.raw else 0

    @property
    def body(self) -> bytes:
        """The body, put together if it came in chunks."""
        head, _, rest = self.raw.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return rest
        pieces = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            pieces.append(rest[:length])
            rest = rest[length + 2 :]
        return b"".join(pieces)

    @property
    def json(self) -> Json:
        answer: Json = json.loads(self.body)
        return answer

    def events(self) -> list[Json]:
        """The events of a stream. Raises ValueError unless [DONE] ends it."""
        *events, done, _ = self.body.split(b"\n\n")
        if done != b"data: [DONE]":
            raise ValueError(f"a stream ends with {done[-80:]!r}")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self.answer = Answer()
        self.over = asyncio.get_running_loop().create_future()
        self._request = request
        self._pieces: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.answer.sent = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.answer.times.append(time.perf_counter())
        self._pieces.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.answer.raw = b"".join(self._pieces)
        if not self.over.done():
            self.over.set_result(None)


async def ask(
    url: str, path: str, body: Json | bytes | None = None, *, leave_after: float | None = None
) -> Answer:
    """One request over a connection of its own. body: None for a GET.

    leave_after: seconds after which the client hangs up, whatever it has by then.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_connection(
        lambda: _Exchange(head.encode() + content), host, int(port)
    )
    try:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(exchange.over), leave_after)
    finally:
        transport.abort()
    await exchange.over
    return exchange.answer


def ask_all(url: str, path: str, bodies: Sequence[bytes], delays: Sequence[float]) -> list[Answer]:
    """POST each when its delay, in seconds, is over; answers in this order. For a program of its own: it
    blocks."""

    async def one(body: bytes, delay: float) -> Answer:
        await asyncio.sleep(delay)
        return await ask(url, path, body)

    async def every() -> list[Answer]:
        return await asyncio.gather(*map(one, bodies, delays))

    return asyncio.run(every())
