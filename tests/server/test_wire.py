"""Hostile and odd bytes on the wire: what is answered, and that nobody else notices."""

import threading

import pytest

from tests.server.conftest import LiveServer
from tests.server.fake_engine import FakeEngine
from tests.server.test_limits import raw, status_and_error, still_well

BODY = b'{"prompt": "abc"}'
STREAM = b'{"prompt": "abcdef", "stream": true}'


def post(body: bytes, *lines: str, close: bool = True) -> bytes:
    """A request with this body and these headers besides the usual ones."""
    start = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    start += (
        [f"Content-Length: {len(body)}"] if not any("Transfer" in line for line in lines) else []
    )
    start += ["Connection: close"] if close else []
    return "\r\n".join([*start, *lines, "", ""]).encode() + body


def chunked(*chunks: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    body = b"".join(parts) + b"0\r\n" + trailer + b"\r\n"
    return post(body, "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    "request_bytes",
    [
        chunked(BODY[:5], BODY[5:]),
        chunked(*(bytes([byte]) for byte in BODY)),
        chunked(BODY, extension=b";name=value"),
        chunked(BODY, trailer=b"X-Checksum: 1\r\n"),
        post(BODY, "Expect: 100-continue"),
        post(b"\xef\xbb\xbf" + BODY),  # a byte order mark
        post(BODY, "Content-Encoding: identity"),
        post(BODY, "Upgrade: h2c"),
        post(BODY, "X: \xff\xfe"),
        post(BODY, "X: folded", " over two lines"),
        post(BODY).replace(b"\r\n", b"\n", 4),
    ],
    ids=[
        "chunked",
        "chunks of a byte",
        "chunk extension",
        "trailer",
        "expects 100",
        "BOM",
        "identity",
        "upgrade",
        "header not ASCII",
        "folded header",
        "bare LF",
    ],
)
def test_odd_but_legal_requests_are_answered(fake_live: LiveServer, request_bytes: bytes) -> None:
    answer = raw(fake_live, request_bytes).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"text":"cba"' in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b""),
        post(b"\x1f\x8b\x08\x00compressed", "Content-Encoding: gzip"),
        post(b"{}", "Transfer-Encoding: gzip, chunked"),
        post(BODY, "X: \x00"),
        post(BODY, "X\x00: y"),
        post(BODY, "Host: other"),
        post(BODY, "Content-Length: 3"),
        post(b"1;" + b"a" * 30_000 + b"\r\n{\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        post(b"-1\r\n{\r\n", "Transfer-Encoding: chunked"),
        "GET /v1/models/é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        b"GET /health\r\n\r\n",
        b'{"prompt": "abc"}\r\n\r\n',
        post(BODY.decode().encode("utf-16")),
        post(f'{{"prompt": "\u2200", "x": {"[" * 900}{"]" * 900}}}'.encode("utf-16-le")),
    ],
    ids=[
        "no body",
        "gzip",
        "gzip in transfer",
        "NUL in a header",
        "NUL in its name",
        "two hosts",
        "two lengths",
        "long chunk extension",
        "negative chunk",
        "path not ASCII",
        "HTTP/0.9",
        "a body alone",
        "UTF-16",
        "nested in UTF-16",
    ],
)
def test_hostile_requests_are_a_400_in_our_shape(
    fake_live: LiveServer, request_bytes: bytes
) -> None:
    try:
        answer = raw(fake_live, request_bytes)
    except OSError:  # it hung up while the client was still sending
        answer = b""
    if answer:
        assert status_and_error(answer)[0] == 400
    still_well(fake_live)


def test_compressed_body_is_refused_with_the_reason(fake_live: LiveServer) -> None:
    answer = raw(fake_live, post(b"\x1f\x8b", "Content-Encoding: gzip"))
    assert "Content-Encoding" in status_and_error(answer)[1]["message"]


def test_length_beside_chunks_does_not_smuggle_a_second_request(fake_live: LiveServer) -> None:
    """Whoever believes the length would see a request in the rest of the chunk. RFC 9112, 6.3."""
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    start = post(b"", "Transfer-Encoding: chunked", "Content-Length: 4")
    answer = raw(fake_live, start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) + hidden)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"text":"cba"' in answer


def test_pipelined_requests_are_answered_in_order(fake_live: LiveServer) -> None:
    first = post(b'{"prompt": "123"}', close=False)
    second = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(fake_live, first + second + post(BODY))
    places = [answer.index(text) for text in (b'"text":"321"', b'"version"', b'"text":"cba"')]
    assert places == sorted(places)
    assert answer.count(b"HTTP/1.1 200") == 3


def test_request_behind_a_stream_waits_for_its_end(fake_live: LiveServer) -> None:
    answer = raw(fake_live, post(STREAM, close=False) + post(BODY))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"data: [DONE]") < answer.rindex(b"HTTP/1.1 200")


def test_many_broken_requests_beside_a_stream_leave_it_alone(
    fake: FakeEngine, fake_live: LiveServer
) -> None:
    fake.step_seconds = 0.005
    answers: list[bytes] = []
    text = "x" * 300
    body = b'{"prompt": "%b", "max_tokens": 300}' % text.encode()
    streaming = threading.Thread(target=lambda: answers.append(raw(fake_live, post(body))))
    streaming.start()
    while streaming.is_alive():
        for broken in (
            b"\x16\x03\x01",
            b"GET / HTTP/1.1\r\n\r\n",
            post(b"{", "X: \x00"),
            post(b"[" * 9),
        ):
            assert raw(fake_live, broken).startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
            if not streaming.is_alive():
                break
    streaming.join()
    assert text.encode() in answers[0]


@pytest.mark.parametrize("path", ["%ff%fe", "a%00b", "%zz%", "..%2f..%2fetc%2fpasswd"])
def test_model_of_any_name_is_a_404(fake_live: LiveServer, path: str) -> None:
    start = f"GET /v1/models/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, error = status_and_error(raw(fake_live, start.encode()))
    assert status == 404
    assert "\x00" not in error["message"]
