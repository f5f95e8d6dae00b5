"""What few clients send: HEAD, OPTIONS, absolute form, many headers, duplicated keys."""

import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from tests.server.test_limits import head, raw, status_and_error, still_well
from yaie.server.connections import MAX_HEAD_BYTES
from yaie.server.request_head import MAX_HEADERS

GET_PATHS = (
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/v1/models/fake",
    "/version",
    "/server_info",
    "/get_server_info",
    "/model_info",
    "/get_load",
)


def ask(server: LiveServer, line: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send a request without a body, read to the end: status, headers in lower case, body."""
    lines = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    start, _, body = raw(server, "\r\n".join(lines).encode()).partition(b"\r\n\r\n")
    status, *fields = start.decode().split("\r\n")
    named = (field.split(": ", 1) for field in fields)
    return int(status.split()[1]), {name.lower(): value for name, value in named}, body


@pytest.mark.parametrize("path", GET_PATHS)
def test_head_answers_as_get_does_without_the_body(fake_live: LiveServer, path: str) -> None:
    """RFC 9110, 9.1: a server must support GET and HEAD."""
    status, of_head, nothing = ask(fake_live, f"HEAD {path}")
    same, of_get, body = ask(fake_live, f"GET {path}")
    assert (status, nothing) == (same, b"") == (200, b"")
    assert of_head["content-type"] == of_get["content-type"]
    if path not in ("/metrics", "/get_load"):  # whose figures change
        assert int(of_head["content-length"]) == len(body)


@pytest.mark.parametrize(("path", "status"), [("/v1/completions", 405), ("/v1/nothing", 404)])
def test_head_where_there_is_no_get_is_refused(
    fake_live: LiveServer, path: str, status: int
) -> None:
    got, headers, body = ask(fake_live, f"HEAD {path}")
    assert (got, body) == (status, b"")
    assert headers.get("allow") == ("POST" if status == 405 else None)


def test_connection_lives_on_after_a_head_request(fake_live: LiveServer) -> None:
    one = b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = raw(fake_live, one, last, pause=0.2)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.endswith(b"}")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/v1/models", "GET"), ("/health", "GET"), ("/metrics", "GET"), ("/v1/completions", "POST")],
)
def test_options_without_cors_is_a_405_that_names_the_method(
    fake_live: LiveServer, path: str, allowed: str
) -> None:
    """As vLLM does with what is no preflight request of a browser's."""
    status, headers, body = ask(fake_live, f"OPTIONS {path}")
    assert (status, headers["allow"]) == (405, allowed)
    assert b'"error"' in body


def test_options_for_the_whole_server_is_a_404(fake_live: LiveServer) -> None:
    assert ask(fake_live, "OPTIONS *")[0] == 404
    still_well(fake_live)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://x/health", 200),
        ("http://elsewhere.example:8000/v1/models?a=b", 200),
        ("HTTPS://x/health", 200),
        ("http://[::1]:8000/health", 200),
        ("http://x/v1/models/fa%6be", 200),
        ("http://x", 200),  # the page
        ("http://x/", 200),
        ("http://x?a", 200),
        ("http://x/v1/nothing", 404),
        ("ftp://x/health", 404),
        ("http://x//health", 404),
    ],
)
def test_absolute_form_is_answered_as_its_path(
    fake_live: LiveServer, target: str, status: int
) -> None:
    """RFC 9112, 3.2.2: a server must accept it, though only clients of a proxy send it."""
    assert ask(fake_live, f"GET {target}")[0] == status


def test_absolute_form_reaches_a_route_that_takes_a_body(fake_live: LiveServer) -> None:
    body = b'{"prompt": "abc"}'
    start = head(len(body)).replace(b"POST /v1", b"POST http://x/v1", 1)
    answer = raw(fake_live, start + body)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"cba"' in answer


def test_no_form_or_method_gets_past_the_key() -> None:
    with serving(FakeEngine, api_key=("secret",)) as server:
        for line in ("GET http://x/v1/models", "HEAD /v1/models", "GET http://health/v1/models"):
            assert ask(server, line)[0] == 401
            assert ask(server, line, "Authorization: Bearer secret")[0] == 200
        for line in ("GET http://x/health", "HEAD /metrics"):
            assert ask(server, line)[0] == 200


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_more_headers_than_256_are_a_400(fake_live: LiveServer, path: str) -> None:
    """The limit that vLLM names; `ask` sends two headers of its own."""
    most = [f"A{number}: b" for number in range(MAX_HEADERS - 2)]
    assert ask(fake_live, f"GET {path}", *most)[0] == 200
    start = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        *most,
        "One-More: b",
        "",
        "",
    ]
    status, error = status_and_error(raw(fake_live, "\r\n".join(start).encode()))
    assert status == 400
    assert "257 headers; at most 256" in error["message"]
    still_well(fake_live)


def test_too_many_headers_before_a_body_are_a_400(fake_live: LiveServer) -> None:
    body = b'{"prompt": "abc"}'
    lines = [f"A{number}: b" for number in range(1000)]
    answer = raw(fake_live, head(len(body), *lines) + body)
    assert status_and_error(answer)[0] == 400
    still_well(fake_live)


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES, 2 * MAX_HEAD_BYTES])
def test_long_head_that_comes_at_once_is_a_400_as_one_in_pieces_is(
    fake_live: LiveServer, size: int
) -> None:
    for line, header in (
        ("GET /health", "A: " + "b" * size),
        ("GET /health?" + "b" * size, "A: b"),
    ):
        start = "\r\n".join(
            [f"{line} HTTP/1.1", "Host: localhost", header, "Connection: close", "", ""]
        )
        for pieces in ([start], [start[:5000], start[5000:]]):
            answer = raw(fake_live, *(piece.encode() for piece in pieces), pause=0.05)
            assert status_and_error(answer)[0] == 400
    still_well(fake_live)


# --- duplicated keys ---


@pytest.mark.parametrize(
    ("path", "content", "text"),
    [
        ("/v1/completions", b'{"prompt": "abc", "prompt": "xyz"}', "zyx"),
        ("/v1/completions", b'{"max_tokens": 1, "prompt": "xyz", "max_tokens": 2}', "zy"),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": "abc", "content": "xyz"}]}',
            "zyx",
        ),
    ],
)
def test_last_of_duplicated_keys_counts(
    fake_live: LiveServer, path: str, content: bytes, text: str
) -> None:
    """As in Python's json, and so in vLLM."""
    kind = {"Content-Type": "application/json"}
    response = fake_live.http.post(path, content=content, headers=kind)
    choice = response.json()["choices"][0]
    assert (choice["message"]["content"] if "message" in choice else choice["text"]) == text


def test_last_of_duplicated_keys_is_the_one_that_is_checked(fake_live: LiveServer) -> None:
    kind = {"Content-Type": "application/json"}
    for content, status in (
        (b'{"prompt": "abc", "n": 0, "n": 1}', 200),
        (b'{"prompt": "abc", "n": 1, "n": 0}', 400),
    ):
        response = fake_live.http.post("/v1/completions", content=content, headers=kind)
        assert response.status_code == status
