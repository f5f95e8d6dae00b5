"""Who calls a prefill server takes nothing from its decode servers, whatever and however slowly."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.handover.conftest import until
from tests.judges.programs import free_port
from yaie.engine.handover import prefill as serving
from yaie.engine.handover.address import TcpAddress
from yaie.engine.handover.greeting import greet
from yaie.engine.handover.layout import FORMAT
from yaie.engine.handover.messages import Hello, Proof
from yaie.engine.handover.prefill import PrefillSide
from yaie.engine.handover.wire import Wire

SECRET = b"known to both sides"
LAYOUT: dict[str, Any] = {"block_size": 16}


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrefillSide]:
    """One with room for two decode servers, and for three callers who have not said who they are."""
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(serving, "MOST_CALLERS", 3)
    nothing: Any = None
    made = PrefillSide(nothing, nothing, LAYOUT, TcpAddress("127.0.0.1", free_port()), SECRET)
    yield made
    made.close()


def welcomed(side: PrefillSide) -> Wire:
    """A decode server that is."""
    wire = side._address.connect()
    greet(wire, LAYOUT, SECRET)
    return wire


@pytest.mark.parametrize("proof", ["\u00fc" * 64, "\ud800", "wrong"])
def test_a_proof_that_is_none_takes_no_slot(side: PrefillSide, proof: str) -> None:
    for _ in range(5):
        wire = side._address.connect()
        wire.send(Hello(FORMAT, '{"block_size": 16}', "1", True))
        wire.receive(0)
        wire.send(Proof(proof))
        wire.receive(0)
        wire.close()
    until(lambda: not side._callers)
    assert not side._connections
    for wire in [welcomed(side), welcomed(side)]:
        wire.close()


def test_what_nobody_has_thought_of_takes_no_slot(
    side: PrefillSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> str:
        raise KeyError("unforeseen")

    with monkeypatch.context() as patched:
        patched.setattr("yaie.engine.handover.greeting.difference", fails)
        for _ in range(5):
            wire = side._address.connect()
            with pytest.raises((EOFError, OSError)):
                greet(wire, LAYOUT, SECRET)
            wire.close()
    until(lambda: not side._callers)
    welcomed(side).close()


def test_callers_who_say_nothing_keep_no_decode_server_out(side: PrefillSide) -> None:
    """They have places of their own, and the one who has taken longest goes first."""
    silent = [
        socket.create_connection((side._address.host, side._address.port))  # type: ignore[union-attr]
        for _ in range(10)
    ]
    until(lambda: len(side._callers) == 3)
    kept = [welcomed(side), welcomed(side)]
    assert len(side._connections) == 2
    assert len(side._callers) <= 3
    for one in silent[:7]:
        one.settimeout(30)
        assert one.recv(1) == b""
    for wire in kept:
        wire.close()
    for one in silent:
        one.close()


def test_decode_servers_beyond_the_slots_wait_for_one(side: PrefillSide) -> None:
    first, second = welcomed(side), welcomed(side)
    with pytest.raises((EOFError, OSError)):
        welcomed(side)
    until(lambda: not side._callers)
    first.close()
    until(lambda: len(side._connections) == 1)
    third = welcomed(side)
    for wire in (second, third):
        wire.close()
    until(lambda: not side._connections)


def test_a_connection_that_cannot_be_had_leaves_the_server_listening(
    side: PrefillSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        wire = side._address.connect()
        with pytest.raises((EOFError, OSError)):
            greet(wire, LAYOUT, SECRET)
        wire.close()
    assert not side._callers
    welcomed(side).close()
