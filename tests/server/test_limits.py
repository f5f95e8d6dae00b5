"""What clients send on purpose to bring a server down: large, deep, slow, broken, and many at a time."""

import json
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_bad_input import JSON, error_of

PATHS = ("/v1/completions", "/v1/chat/completions")
TEXT = {"prompt": "abc"}


def still_well(server: LiveServer) -> None:
    """Whatever was sent before, the next request is answered."""
    assert server.http.post("/v1/completions", json=TEXT).json()["choices"][0]["text"] == "cba"
    assert server.http.get("/health").status_code == 200


def raw(server: LiveServer, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send these bytes, and read until the server closes the connection."""
    with connect(server) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        return read_all(connection)


def connect(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def head(length: int | None = None, *lines: str) -> bytes:
    known = [] if length is None else [f"Content-Length: {length}"]
    start = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*start, *known, "Connection: close", *lines, "", ""]).encode()


def status_and_error(answer: bytes) -> tuple[int, dict[str, Any]]:
    start, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return int(start.split()[1]), error


# --- depth ---


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"messages": [{"role": "user", "content": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
        b"[" * 500_000 + b"]" * 500_000,
        b"[{" * 8_000_000,
        b'{"tools": ' + b'[{"x":' * 300 + b"1" + b"}]" * 300 + b"}",
    ],
)
def test_deep_nesting_is_a_400(fake_live: LiveServer, path: str, content: bytes) -> None:
    error = error_of(fake_live.http.post(path, content=content, headers=JSON), 400)
    assert "nested" in error["message"]
    still_well(fake_live)


# --- size ---


@pytest.mark.parametrize("size", [10**6, 10**8])
@pytest.mark.parametrize("chunked", [False, True])
def test_body_beyond_the_limit_is_a_413_and_is_not_kept(size: int, chunked: bool) -> None:
    with serving(FakeEngine, max_body_bytes=100_000) as server:
        with connect(server) as connection:
            connection.sendall(head(None, "Transfer-Encoding: chunked") if chunked else head(size))
            sent, piece = 0, b"x" * 65536
            try:
                while sent < size:
                    connection.sendall(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
                    sent += len(piece)
                if chunked:
                    connection.sendall(b"0\r\n\r\n")
            except ConnectionError:
                pass  # the server hung up, as it may
            assert sent < 10**8
            try:
                answer = read_all(connection)
            except ConnectionError:
                answer = b""
        if answer:
            assert status_and_error(answer)[0] == 413
        still_well(server)


def test_announced_length_is_refused_before_a_byte_of_it_comes(fake: FakeEngine) -> None:
    with serving(lambda: fake, max_body_bytes=1000) as server:
        status, error = status_and_error(raw(server, head(10**12)))
        assert status == 413
        assert "1000 bytes" in error["message"]


# --- time ---


def test_body_that_does_not_come_is_a_408(fake: FakeEngine) -> None:
    with serving(lambda: fake, receive_timeout=0.3) as server:
        status, _ = status_and_error(raw(server, head(100) + b"{"))
        assert status == 408
        still_well(server)


def test_body_that_trickles_is_a_408(fake: FakeEngine) -> None:
    with serving(lambda: fake, receive_timeout=0.4) as server:
        with connect(server) as connection:
            connection.sendall(head(10_000))
            started = time.monotonic()
            try:
                while time.monotonic() - started < 5:
                    connection.sendall(b" ")
                    time.sleep(0.05)
                    connection.setblocking(False)
                    try:
                        answer = connection.recv(65536)
                    except BlockingIOError:
                        connection.setblocking(True)
                        continue
                    connection.setblocking(True)
                    answer += read_all(connection)  # its body comes a moment later
                    break
                else:
                    pytest.fail("it was never cut off")
            except OSError:
                answer = b""
        assert not answer or status_and_error(answer)[0] == 408
        still_well(server)


def test_answer_may_take_longer_than_the_request(fake: FakeEngine) -> None:
    fake.step_seconds = 0.05
    with serving(lambda: fake, receive_timeout=0.3) as server:
        body = {"prompt": "x" * 20, "max_tokens": 20}
        assert server.http.post("/v1/completions", json=body).status_code == 200


# --- form ---


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "content",
    [
        b'{"prompt": "abc", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": "abc", "temperature": 1e999}',
        b'{"prompt": "abc", "temperature": NaN}',
        b'{"prompt": "abc", "top_p": -Infinity}',
        b'{"prompt": "abc", "top_p": -0.0}',
        b'{"prompt": "abc", "logit_bias": {"1": NaN}}',
        b'{"prompt": "\xff\xfe"}',
        b"\xff\xfe{\x00}\x00",
        b'{"prompt": "abc"',
        b"null",
        b'{"prompt": "abc"} {"prompt": "abc"}',
        b'{"prompt": "a\nb"}',
        b"\x00" * 1000,
    ],
)
def test_broken_json_and_extreme_numbers_are_a_400(
    fake_live: LiveServer, path: str, content: bytes
) -> None:
    if "chat" in path:
        content = content.replace(
            b'"prompt": "abc"', b'"messages": [{"role":"user","content":"abc"}]'
        )
    error_of(fake_live.http.post(path, content=content, headers=JSON), 400)
    still_well(fake_live)


@pytest.mark.parametrize("field", ["max_tokens", "n", "seed", "priority", "stop_token_ids"])
@pytest.mark.parametrize("value", ["9" * 4000, "-" + "9" * 4000, "1e400", "9e99", str(2**64)])
def test_number_of_any_size_is_a_400(live: LiveServer, field: str, value: str) -> None:
    content = f'{{"prompt": "abc", "{field}": {value}}}'.encode()
    error = error_of(live.http.post("/v1/completions", content=content, headers=JSON), 400)
    assert error["param"] == field
    assert len(error["message"]) <= 500


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/xml"],
)
def test_other_content_types_are_a_400(fake_live: LiveServer, kind: str) -> None:
    response = fake_live.http.post(
        "/v1/completions", content=b'{"prompt": "abc"}', headers={"Content-Type": kind}
    )
    assert "application/json" in error_of(response, 400)["message"]


# --- numbers ---


def test_requests_beyond_the_limit_are_a_503_and_the_rest_goes_on(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, max_concurrent_requests=3) as server:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{server.url}/v1/completions", json=TEXT, timeout=30))

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
        within(20, lambda: server.engine.num_streams == 3)
        refused = server.http.post("/v1/completions", json=TEXT)
        assert error_of(refused, 503)
        assert refused.headers["retry-after"]
        assert server.http.get("/health").status_code == 200
        assert server.http.get("/metrics").status_code == 200
        fake.gate.set()
        for thread in asking:
            thread.join(10)
        assert [answer.status_code for answer in answers] == [200] * 3
        still_well(server)
