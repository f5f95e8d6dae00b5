"""What goes over a connection, and what is refused there, for both ways of sending blocks."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engine.handover.conftest import until
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import HELLO_SECONDS, MOST_BYTES, RefusedError, greet, welcome
from yaie.engine.handover.layout import FORMAT
from yaie.engine.handover.memory import mapped, shared
from yaie.engine.handover.messages import Blocks, Drop, Failed, Hello, Proof, Reply
from yaie.engine.handover.wire import _HEAD, MemoryWire, StreamWire, Wire
from yaie.system.codec import LENGTH_BYTES

BLOCKS = (np.arange(5_000_000) % 251).astype(np.uint8)
Ends = tuple[Wire, Wire, socket.socket]
DROP = b'["Drop",1]'


def framed(text: bytes, data_length: int = 0) -> bytes:
    """As a message with this text is sent, before its data."""
    length = len(text).to_bytes(LENGTH_BYTES, "little")
    return _HEAD.pack(LENGTH_BYTES + len(text), data_length) + length + text


@pytest.fixture(params=[StreamWire, MemoryWire])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Two ends of a connection, and the socket of the first."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield request.param(ours), request.param(theirs), ours


def test_messages_and_blocks_arrive_as_they_were_sent(ends: Ends) -> None:
    left, right, _ = ends

    def send() -> None:
        left.send(Failed(1, "word " * 100_000))
        left.send(Blocks(1), BLOCKS)
        left.send(Drop(2))

    sending = threading.Thread(target=send)
    sending.start()
    assert right.receive(0) == (Failed(1, "word " * 100_000), None)
    message, data = right.receive(len(BLOCKS))
    assert message == Blocks(1)
    assert data is not None
    assert np.array_equal(data, BLOCKS)
    assert right.receive(0) == (Drop(2), None)
    sending.join()
    left.end()
    with pytest.raises(EOFError):
        right.receive(0)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (_HEAD.pack(1 << 31, 0), "may have 67,108,864"),
        (_HEAD.pack(2, 1 << 60) + b"{}", "bytes of blocks, and may have 1,000"),
        (_HEAD.pack(2, 0) + b"{}", "cannot have"),
        (framed(b"{}"), "begins with the name of its kind"),
        (framed(b"{]"), "Expecting"),
        (framed(b"\xff\xff"), "decode"),
        (framed(b"[" * 100_000), "nested too deeply"),
        (framed(b'["Drop",true]'), "Drop.number: must be a whole number"),
    ],
    ids=["long", "large", "no length", "no list", "no JSON", "no text", "deep", "no number"],
)
def test_what_is_no_message_is_refused_before_more_is_read(
    ends: Ends, sent: bytes, said: str
) -> None:
    ends[2].sendall(sent)
    with pytest.raises(ValueError, match=said):
        ends[1].receive(1000)


def test_a_connection_that_ends_in_the_middle_is_at_its_end(ends: Ends) -> None:
    ends[2].sendall(framed(b'["Drop",1]', 100)[:-1])
    ends[0].end()
    with pytest.raises(EOFError):
        ends[1].receive(1000)


def test_shared_memory_of_another_length_is_refused_and_closed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, open(__file__, "rb") as other:
        wire = MemoryWire(theirs)
        before = len(os.listdir("/proc/self/fd"))
        memory = shared(BLOCKS[:2])
        socket.send_fds(ours, [framed(DROP, 3)], [memory])
        os.close(memory)
        with pytest.raises(ValueError, match="not as long"):
            wire.receive(1000)
        socket.send_fds(ours, [framed(DROP, 3)], [other.fileno()])
        with pytest.raises(ValueError, match="not sealed"):
            wire.receive(1000)
        ours.sendall(framed(DROP, 3))
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
    raw.sendall(framed(DROP, 7))  # it takes no blocks
    until(lambda: ended == [channel])
    with pytest.raises((EOFError, ConnectionError)):
        left.receive(0)
    channel.send(Drop(1))  # has no effect


@pytest.mark.parametrize(
    "call",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        _HEAD.pack(MOST_BYTES + 1, 0),
        framed(DROP),
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
        welcome(ends[1], {}, None, lambda: True)


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
    assert isinstance(hello, Hello)
    right.send(Reply("", hello.number, hello.number))
    asking.join(HELLO_SECONDS)
    assert "is another one" in str(result[0])


def test_a_decode_server_without_the_secret_is_refused(ends: Ends) -> None:
    left, right, _ = ends
    left.send(Hello(FORMAT, "{}", "1", True))
    left.send(Proof("made up"))
    with pytest.raises(RefusedError, match="decode server's secret"):
        welcome(right, {}, b"the secret of one side", lambda: True)
    said: list[Any] = [left.receive(0)[0] for _ in range(2)]
    answers = [one.refused for one in said]
    assert answers[0] == ""
    assert "is another one" in answers[1]


def both_greet(ends: Ends, secret: bytes | None) -> None:
    left, right, _ = ends
    asking = threading.Thread(target=greet, args=(left, {}, secret))
    asking.start()
    welcome(right, {}, secret, lambda: True)
    asking.join(HELLO_SECONDS)
    assert not asking.is_alive()


def test_after_the_greeting_each_message_has_a_proof(ends: Ends) -> None:
    left, right, raw = ends
    both_greet(ends, b"the secret of both sides")
    left.send(Drop(1))
    right.send(Blocks(1), BLOCKS[:1000])
    assert right.receive(0)[0] == Drop(1)
    assert left.receive(1000)[0] == Blocks(1)
    raw.sendall(framed(DROP)[:12] + bytes(32) + framed(DROP)[12:])
    with pytest.raises(ValueError, match="does not know the secret"):
        right.receive(0)


def test_blocks_that_someone_has_changed_on_the_way_are_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        left, right = StreamWire(ours), StreamWire(theirs)
        both_greet((left, right, ours), b"the secret of both sides")
        right.send(Blocks(1), BLOCKS[:1000])
        sent = bytearray(ours.recv(5000))
        sent[-1] ^= 1
        theirs.sendall(sent)
        with pytest.raises(ValueError, match="does not know the secret"):
            left.receive(1000)


@pytest.mark.parametrize("proof", ["\u00fc" * 64, "\ud800", ""], ids=["not ASCII", "half", "none"])
def test_a_proof_may_be_any_text(ends: Ends, proof: str) -> None:
    left, right, _ = ends
    left.send(Hello(FORMAT, "{}", "\u00fc\ud800", True))
    left.send(Proof(proof))
    with pytest.raises(RefusedError, match="decode server's secret"):
        welcome(right, {}, b"the secret of one side", lambda: True)


class Slow:
    """A socket at which a byte arrives every three seconds of a clock that nobody waits for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.limit: float | None = None
        self.left = iter(_HEAD.pack(200, 0) + bytes(200))

    def monotonic(self) -> float:
        return self.now

    def settimeout(self, seconds: float | None) -> None:
        self.limit = seconds

    def recv(self, count: int) -> bytes:
        if self.limit is not None and self.limit < 3:
            self.now += self.limit
            raise TimeoutError("timed out")
        self.now += 3
        return bytes([next(self.left)])


def test_a_greeting_has_one_limit_for_all_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not make it longer."""
    slow: Any = Slow()
    monkeypatch.setattr(time, "monotonic", slow.monotonic)
    with pytest.raises(TimeoutError):
        welcome(StreamWire(slow), {}, None, lambda: True)
    assert slow.now == 100 + HELLO_SECONDS


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory is sealed on Linux")
def test_memory_that_its_sender_can_still_change_is_refused() -> None:
    """Or it could make it shorter, which would end whoever reads there."""
    file = shared(BLOCKS[:5000])
    try:
        for change in (
            lambda: os.ftruncate(file, 10),
            lambda: os.ftruncate(file, 10_000),
            lambda: os.pwrite(file, b"x", 0),
        ):
            with pytest.raises(PermissionError):
                change()
        assert np.array_equal(mapped(file, 5000), BLOCKS[:5000])
        writable = mapped(file, 5000)
        writable[0] += 1  # in a copy
        assert np.array_equal(mapped(file, 5000), BLOCKS[:5000])
    finally:
        os.close(file)
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    try:
        os.write(unsealed, bytes(5000))
        with pytest.raises(ValueError, match="not sealed: its sender could make it shorter"):
            mapped(unsealed, 5000)
    finally:
        os.close(unsealed)
