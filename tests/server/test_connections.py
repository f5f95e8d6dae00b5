"""Connections that never become a request, or that are too many."""

import asyncio
import time
from typing import Any, cast

import pytest

from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_limits import connect, head, raw, read_all, status_and_error, still_well
from yaie.server import run, unread
from yaie.server.late_heads import LateHeads
from yaie.server.unread import LOOKS, Unread
from yaie.system.descriptors import SPARE_FILES, allowed_connections


@pytest.mark.parametrize(
    "start", [b"", b"POST /v1/comp", b"POST / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n"]
)
def test_head_that_does_not_come_is_a_408(fake: FakeEngine, start: bytes) -> None:
    with serving(lambda: fake, receive_timeout=0.3) as server:
        assert status_and_error(raw(server, start))[0] == 408
        still_well(server)


def test_second_head_on_a_connection_has_its_time_too(fake: FakeEngine) -> None:
    with serving(lambda: fake, receive_timeout=0.3) as server:
        get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = raw(server, get, b"GET /hea", pause=0.1)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answer


def test_idle_connection_is_kept_longer_than_load_balancers_keep_theirs(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.KEEP_ALIVE_SECONDS > 60
    monkeypatch.setattr(run, "KEEP_ALIVE_SECONDS", 0.2)
    with serving(lambda: fake) as server, connect(server) as connection:
        connection.settimeout(4)  # uvicorn's own setting is 5
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # somebody speaks TLS
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 10**6 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 200_000 + b"\r\n",
        b"GET /" + b"a" * 10**6 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_a_400_in_our_shape(fake_live: LiveServer, request_bytes: bytes) -> None:
    try:
        answer = raw(fake_live, request_bytes)
    except OSError:  # it hung up while the client was still sending
        answer = b""
    if answer:
        assert status_and_error(answer)[0] == 400
    still_well(fake_live)


def test_connections_beyond_the_limit_are_told_and_closed(fake: FakeEngine) -> None:
    with serving(lambda: fake, max_connections=20) as server:
        idle = [connect(server) for _ in range(20)]
        status, _ = status_and_error(raw(server))
        assert status == 503
        for connection in idle:
            connection.close()
        within(20, lambda: server.http.get("/health").status_code == 200)


@pytest.mark.parametrize("more", [b"", b'{"prompt": '])
def test_request_that_is_still_coming_at_the_end_is_refused_and_not_waited_for(
    fake: FakeEngine, more: bytes
) -> None:
    with serving(lambda: fake, receive_timeout=60.0) as server:
        connection = connect(server)
        connection.sendall(head(length=1000) + more)
        time.sleep(0.2)
        assert server.http.get("/health").status_code == 200
    with connection:  # the server has been told to leave, without a limit to wait for
        status, error = status_and_error(read_all(connection))
    assert status == 503
    assert "shutting down" in error["message"]


def test_no_more_connections_are_allowed_than_there_are_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")
    limits = [256, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.__setitem__(0, wanted[0]))
    assert allowed_connections(100) == 100
    assert limits[0] == 256  # enough already
    assert allowed_connections(500) == 500
    assert limits[0] == 500 + SPARE_FILES  # raised as far as needed
    assert allowed_connections(5000) == 1000 - SPARE_FILES  # as far as allowed


class Head:
    """A connection that awaits what the test says."""

    def __init__(self) -> None:
        self.awaits_head: object | None = self
        self.is_late = False

    def head_is_late(self) -> None:
        self.is_late = True


class Loop:
    """A clock that the test sets, and no timers."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, *_: Any) -> Any:
        return None


def test_only_a_head_that_is_due_for_so_long_is_late() -> None:
    slow, quick, begun, idle = (Head() for _ in range(4))
    late, loop = LateHeads(6.0), cast("Any", Loop())
    for connection in (slow, quick, begun, idle):
        late.watch(connection, loop)
    idle.awaits_head = begun.awaits_head = None
    for now in range(1, 10):
        loop.now = float(now)
        quick.awaits_head = object()  # another request's at each look
        begun.awaits_head = begun if now >= 3 else None
        late._look(loop)
        is_late = [connection.is_late for connection in (slow, quick, begun, idle)]
        assert is_late == [now >= 6, False, now >= 9, False]
    late.forget(slow)
    assert slow not in late._due


class Transport(asyncio.Transport):
    """Of a client who takes what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0
        self.is_cut = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_cut = True


def test_only_a_client_who_takes_nothing_of_what_lies_ready_is_cut_off() -> None:
    waits, reads, is_read, stops = (Transport() for _ in range(4))  # one waits in the queue
    loop, watched = asyncio.new_event_loop(), Unread()
    for transport in (waits, reads, is_read, stops):
        watched.watch(transport, loop)
    reads.unread = 1000
    for look in range(3 * LOOKS):
        is_read.unread = 50 * (look % 2)
        reads.unread -= 1
        stops.unread = 70 if look > LOOKS else 0
        watched._look(loop)
        cut = [transport.is_cut for transport in (waits, reads, is_read, stops)]
        assert cut == [False, False, False, look > 2 * LOOKS]
    watched.forget(stops)
    assert stops not in watched._seen
    loop.close()


def test_a_client_who_reads_nothing_of_its_answers_is_cut_off(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(unread, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(Unread, "forget", lambda _, transport: lost.append(transport))
    with serving(lambda: fake) as server:
        still_well(server)
        with connect(server) as pipe:
            # More than the kernel keeps, asked for one after the other.
            pipe.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
            within(60, lambda: lost)
        still_well(server)
