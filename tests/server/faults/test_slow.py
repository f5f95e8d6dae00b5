"""Clients who dawdle: the engine never waits for one, and what is kept for one is bounded."""

import gc
import json
import time
from asyncio import Transport
from typing import Any

from tests.server.conftest import within
from tests.server.faults.clients import ask, connect, head, read_all
from tests.server.faults.conftest import Patient
from tests.server.faults.watch import SOON
from yaie.engine.background.streams import RequestStream

CHOICES, TOKENS = 8, 400
LONG = {
    "prompt": "blocks",
    "n": CHOICES,
    "max_tokens": TOKENS,
    "temperature": 0,
    "ignore_eos": True,
}
HIGH_WATER = 1 << 16
"""Bytes that asyncio keeps for a connection before it asks its writer to wait."""


def alive(kind: type) -> list[Any]:
    """Every object of a class in this process, the server's among them."""
    return [item for item in gc.get_objects() if issubclass(type(item), kind)]


def most_unsent() -> int:
    """The largest number of bytes that wait here for a reader; the kernel's buffers are small."""
    return max(transport.get_write_buffer_size() for transport in alive(Transport))


def most_pending() -> int:
    """The largest number of outputs that a stream keeps for its reader."""
    return max((len(stream._pending) for stream in alive(RequestStream)), default=0)


def test_reader_of_a_byte_now_and_then_holds_up_nobody_and_gets_all(roomy: Patient) -> None:
    whole = roomy.http.post("/v1/completions", json=LONG, timeout=60).json()["choices"]
    reader = ask(roomy.url, {**LONG, "stream": True}, receive_buffer=2048)
    first = [reader.recv(1)]
    with roomy.company():
        first.append(reader.recv(1))
    # The engine is through with all of it though two bytes were read, and its blocks are back.
    within(30, lambda: not roomy.llm.has_work)
    assert roomy.llm.stats()["used_blocks"] == 0
    assert most_pending() <= CHOICES
    assert 0 < most_unsent() <= 2 * HIGH_WATER
    for _ in range(3):
        time.sleep(0.05)
        first.append(reader.recv(1))
    answer = b"".join(first) + read_all(reader, b"data: [DONE]")
    reader.close()
    texts = [""] * CHOICES
    for event in _events(answer):
        choice = event["choices"][0]
        texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole]


def _events(answer: bytes) -> list[dict[str, list[dict[str, str]]]]:
    """The events in a response that came in chunks, whose sizes stand between them."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size or b"0", 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    lines = [line for line in body.split(b"\n\n") if line and b"[DONE]" not in line]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def test_reader_who_stops_reading_and_leaves_is_let_go(roomy: Patient) -> None:
    reader = ask(roomy.url, {**LONG, "stream": True}, receive_buffer=2048)
    with roomy.company():
        reader.recv(1)
        within(30, lambda: most_unsent() > 0)
    reader.close()
    within(SOON, lambda: roomy.engine.num_streams == 0)


def test_half_a_body_holds_up_nobody(roomy: Patient) -> None:
    content = json.dumps(LONG).encode()
    stalled = [connect(roomy.url) for _ in range(20)]
    for connection in stalled:
        connection.sendall(head(len(content)) + content[: len(content) // 2])
    with roomy.company():
        within(10, lambda: roomy.llm.has_work)
    assert roomy.engine.num_streams == 0
    for connection in stalled:
        connection.close()


def test_rest_of_a_stalled_body_is_still_answered(roomy: Patient) -> None:
    content = json.dumps({"prompt": "blocks", "max_tokens": 2}).encode()
    connection = connect(roomy.url)
    connection.sendall(head(len(content)) + content[:10])
    with roomy.company():
        pass
    connection.sendall(content[10:])
    assert read_all(connection, b'"usage"').startswith(b"HTTP/1.1 200")
    connection.close()
