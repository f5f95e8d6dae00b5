"""Clients: company that wants nothing but its answers, and one on a bare socket that misbehaves."""

import json
import socket
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from tests.server.conftest import LiveServer

PATH = "/v1/completions"
_TEXTS = [
    "The scheduler admits a request when blocks are free; it preempts one when none is left.",
    "Ein Straßenschild zeigt 37 °C",
    "A paged KV cache keeps keys and values in blocks of sixteen slots,",
]
_DRAWS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.9, "seed": 5, "top_p": 0.95}]
OTHERS: list[dict[str, Any]] = [
    {"prompt": text, "max_tokens": 80, "ignore_eos": True, "stream": stream, **draw}
    for text, stream in zip(_TEXTS, (False, True, False), strict=True)
    for draw in _DRAWS
]
"""Greedy and seeded, streamed and not."""


def text_of(server: LiveServer, body: dict[str, Any]) -> str:
    """The text of the only choice of a good answer. Raises AssertionError for any other."""
    response = server.http.post(PATH, json=body)
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        text: str = response.json()["choices"][0]["text"]
        return text
    *events, done = [line for line in response.text.split("\n\n") if line]
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


class Company:
    """`with Company(...)`: others are served meanwhile, and must have what they would have alone."""

    def __init__(
        self, server: LiveServer, expected: Sequence[str], bodies: Sequence[Any] = OTHERS
    ) -> None:
        self._server, self._expected, self._bodies = server, list(expected), bodies
        self._pool = ThreadPoolExecutor(len(bodies))
        self._texts: list[Future[str]] = []

    @property
    def size(self) -> int:
        return len(self._bodies)

    def __enter__(self) -> "Company":
        self._texts = [self._pool.submit(text_of, self._server, body) for body in self._bodies]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            assert [text.result(60) for text in self._texts] == self._expected
        self._pool.shutdown(wait=error is None)


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def connect(url: str, receive_buffer: int | None = None) -> socket.socket:
    """A bare connection. receive_buffer: bytes that the kernel keeps for a client who does not read."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", port_of(url)))
    return connection


def head(length: int | str, path: str = PATH) -> bytes:
    """The head of a POST. length: of its body, or "chunked"."""
    size = "Transfer-Encoding: chunked" if length == "chunked" else f"Content-Length: {length}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{size}\r\n\r\n"
    ).encode()


def ask(url: str, body: dict[str, Any], **options: Any) -> socket.socket:
    """Send a whole request and leave the connection open, unread."""
    content = json.dumps(body).encode()
    connection = connect(url, **options)
    connection.sendall(head(len(content)) + content)
    return connection


def read_all(connection: socket.socket, end: bytes) -> bytes:
    """What comes until this has come, or the other side has closed."""
    answer = b""
    while end not in answer:
        piece = connection.recv(1 << 20)
        if not piece:
            break
        answer += piece
    return answer


def status_of(connection: socket.socket) -> int:
    """The status of the answer that comes."""
    return int(read_all(connection, b"\r\n\r\n").split(b" ", 2)[1])
