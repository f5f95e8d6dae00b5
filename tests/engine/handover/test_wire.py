"""What goes over a connection, and what is refused there, for both ways of sending blocks."""

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engine.handover.conftest import until
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import HELLO_SECONDS, MOST_BYTES, RefusedError, greet, welcome
from yaie.engine.handover.wire import _HEAD, MemoryWire, StreamWire, Wire

BLOCKS = (np.arange(5_000_000) % 251).astype(np.uint8)
Ends = tuple[Wire, Wire, socket.socket]


@pytest.fixture(params=[StreamWire, MemoryWire])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Two ends of a connection, and the socket of the first."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield request.param(ours), request.param(theirs), ours


def test_messages_and_blocks_arrive_as_they_were_sent(ends: Ends) -> None:
    left, right, _ = ends

    def send() -> None:
        left.send({"a": "word " * 100_000})
        left.send({"blocks": 1}, BLOCKS)
        left.send({"b": [1, 2]})

    sending = threading.Thread(target=send)
    sending.start()
    assert right.receive(0) == ({"a": "word " * 100_000}, None)
    message, data = right.receive(len(BLOCKS))
    assert message == {"blocks": 1}
    assert data is not None
    assert np.array_equal(data, BLOCKS)
    assert right.receive(0) == ({"b": [1, 2]}, None)
    sending.join()
    left.end()
    with pytest.raises(EOFError):
        right.receive(0)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (_HEAD.pack(1 << 31, 0), "may have 67,108,864"),
        (_HEAD.pack(2, 1 << 60) + b"{}", "bytes of blocks, and may have 1,000"),
        (_HEAD.pack(2, 0) + b"[]", "must be an object"),
        (_HEAD.pack(2, 0) + b"{]", "Expecting"),
        (_HEAD.pack(2, 0) + b"\xff\xff", "decode"),
        (_HEAD.pack(100_000, 0) + b"[" * 100_000, "nested too deeply"),
    ],
    ids=["long", "large", "no object", "no JSON", "no text", "deep"],
)
def test_what_is_no_message_is_refused_before_more_is_read(
    ends: Ends, sent: bytes, said: str
) -> None:
    ends[2].sendall(sent)
    with pytest.raises(ValueError, match=said):
        ends[1].receive(1000)


def test_a_connection_that_ends_in_the_middle_is_at_its_end(ends: Ends) -> None:
    ends[2].sendall(_HEAD.pack(2, 100) + b"{")
    ends[0].end()
    with pytest.raises(EOFError):
        ends[1].receive(1000)


def test_shared_memory_of_another_length_is_refused_and_closed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, open(__file__, "rb") as other:
        wire = MemoryWire(theirs)
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(ours, [_HEAD.pack(2, 3) + b"{}"], [other.fileno()])
        with pytest.raises(ValueError, match="not as long"):
            wire.receive(1000)
        ours.sendall(_HEAD.pack(2, 3) + b"{}")
        with pytest.raises(ValueError, match="without the memory"):
            wire.receive(1000)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_channel_ends_once_when_it_hears_nonsense_and_its_other_side_sees_it(
    ends: Ends,
) -> None:
    left, right, raw = ends
    ended: list[Channel] = []
    channel = Channel(right, 0, lambda c, m, d: None, ended.append)
    channel.start()
    raw.sendall(_HEAD.pack(2, 7) + b"{}")  # it takes no blocks
    until(lambda: ended == [channel])
    with pytest.raises((EOFError, ConnectionError)):
        left.receive(0)
    channel.send({"late": 1})  # has no effect


@pytest.mark.parametrize(
    "call",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        _HEAD.pack(MOST_BYTES + 1, 0),
        _HEAD.pack(17, 0) + b'{"prompt": 1}    ',
        b"",
    ],
    ids=["HTTP", "long", "no greeting", "nothing"],
)
def test_a_stranger_is_not_welcome(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, call: bytes
) -> None:
    monkeypatch.setattr("yaie.engine.handover.greeting.HELLO_SECONDS", 0.05)
    ends[2].sendall(call)
    with pytest.raises((ValueError, OSError)):
        welcome(ends[1], {}, None)


def test_a_side_that_only_repeats_what_it_hears_does_not_pass(ends: Ends) -> None:
    """Neither of the two proofs can be had from the other side."""
    left, right, _ = ends
    result: list[Any] = []

    def ask() -> None:
        try:
            greet(left, {}, b"the secret of one side")
        except RefusedError as error:
            result.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    hello, _ = right.receive(0)
    right.send({"refused": "", "number": hello["number"], "proof": hello["number"]})
    asking.join(HELLO_SECONDS)
    assert "is another one" in str(result[0])


def test_a_decode_server_without_the_secret_is_refused(ends: Ends) -> None:
    left, right, _ = ends
    left.send({"hello": {}, "number": "1", "has_secret": True})
    left.send({"proof": "made up"})
    with pytest.raises(RefusedError, match="decode server's secret"):
        welcome(right, {}, b"the secret of one side")
    answers = [left.receive(0)[0]["refused"] for _ in range(2)]
    assert answers[0] == ""
    assert "is another one" in answers[1]
