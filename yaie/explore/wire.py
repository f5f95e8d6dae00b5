"""A client without a network: calls the HTTP application and keeps every message with its time."""

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from yaie.core.contracts import ApiServer
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.llm_engine import LLMEngine
from yaie.server.app import create_app

T = TypeVar("T")


@dataclass(slots=True)
class Answer:
    """What came back. pieces: (milliseconds after the call, bytes), in order."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def events(self) -> list[tuple[float, str]]:
        """(milliseconds, what follows "data: ") for each server-sent event."""
        return [
            (at, line.removeprefix("data: "))
            for at, piece in self.pieces
            for line in piece.decode().split("\n\n")
            if line
        ]


class Client:
    """Talks to an API part on an engine, between `start` and `stop`.

    A notebook has an event loop of its own, so this one runs in a thread.
    """

    def __init__(self, api: ApiServer, engine: LLMEngine) -> None:
        self._engine = AsyncEngine(lambda: engine)
        self._app = create_app(self._engine, api)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._run(self._engine.start())

    def stop(self) -> None:
        self._run(self._engine.shutdown())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def post(self, path: str, body: dict[str, Any] | bytes, *, leave_after: int = 0) -> Answer:
        """Send a body and wait for the end. leave_after: hang up after so many pieces; 0 never."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._run(self._call("POST", path, data, leave_after))

    def get(self, path: str) -> Answer:
        return self._run(self._call("GET", path, b"", 0))

    def stats(self) -> dict[str, float]:
        """The engine's counters."""
        return self._run(self._engine.stats())

    async def _call(self, method: str, path: str, data: bytes, leave_after: int) -> Answer:
        answer, left = Answer(), asyncio.Event()
        unread = [{"type": "http.request", "body": data, "more_body": False}]
        begin = time.perf_counter()

        async def receive() -> dict[str, Any]:
            if unread:
                return unread.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            elif message.get("body"):
                answer.pieces.append((1000 * (time.perf_counter() - begin), message["body"]))
            if leave_after and len(answer.pieces) >= leave_after:
                left.set()

        await self._app(_scope(method, path, len(data)), receive, send)
        return answer


def _scope(method: str, path: str, length: int) -> dict[str, Any]:
    """ASGI's description of a call."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers if method == "POST" else [],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
