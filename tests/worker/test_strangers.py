"""What a stranger sends to the ports of ranks is neither carried out nor believed."""

import os
import pickle
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.worker.test_hosts import CONFIG, SECRET, heard, launches, met
from tests.worker.test_rank_groups import side_by_side
from yaie.core.errors import ConfigError, RankError
from yaie.worker.parallel import rendezvous
from yaie.worker.parallel.launch import Launch
from yaie.worker.parallel.members import Gone
from yaie.worker.parallel.messages import MESSAGES, Done
from yaie.worker.parallel.packets import MOST_BYTES, message, packets
from yaie.worker.parallel.session import Session


class Evil:
    """What writes to a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "carried-out"


@pytest.fixture
def evil(trace: Path) -> bytes:
    data = pickle.dumps(Evil(trace))
    pickle.loads(data)
    trace.rmdir()  # it does work
    return data


def failed(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except (ConfigError, RankError, EOFError) as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_a_stranger_sends_for_a_rank_is_neither_carried_out_nor_believed(
    evil: bytes, trace: Path
) -> None:
    hosts, pipes = met()
    for packet in packets(evil):
        pipes[0]._answers.send(packet, 0).wait()
    for packet in packets(MESSAGES.encode(Done(1, 2))):
        pipes[1]._answers.send(packet, 0).wait()
    gone = heard(hosts, 2)
    assert [(type(one), one.rank) for one in gone] == [(Gone, 1), (Gone, 2)]
    assert all("someone who does not know the secret" in one.how for one in gone)
    assert not trace.exists()


def test_what_a_stranger_sends_for_rank_0_ends_the_others(
    evil: bytes, trace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts, pipes = met()

    def say() -> None:
        for packet in packets(evil):
            hosts._steps.carry(packet)

    _, *ends = side_by_side([say, *(partial(failed, pipe.recv_bytes) for pipe in pipes)])
    assert [type(one) for one in ends] == [EOFError] * 2
    assert "rank 1 ends, for rank 0 cannot be believed" in caplog.text
    assert not trace.exists()


def test_a_message_counts_once_in_order_and_for_its_own_way() -> None:
    session = Session(SECRET, ("1", "2"))
    said = session.steps()
    first, second = said.close(b"first"), said.close(b"second")
    assert session.steps().open(first) == b"first"
    others = [Session(SECRET, ("1", "3")), Session(SECRET[::-1], ("1", "2"))]
    for hears in (session.answers(0), session.answers(1), *(one.steps() for one in others)):
        with pytest.raises(ValueError, match="does not know the secret"):
            hears.open(first)
    with pytest.raises(ValueError, match="does not know the secret"):
        session.steps().open(second)
    twice = session.steps()
    twice.open(first)
    with pytest.raises(ValueError, match="does not know the secret"):
        twice.open(first)
    changed = bytearray(first)
    changed[-1] ^= 1
    for wrong in (changed, first[:-1], b"", b"first"):
        with pytest.raises(ValueError, match="does not know the secret"):
            session.steps().open(wrong)


def test_memory_is_not_taken_for_whatever_length_a_stranger_says() -> None:
    (packet,) = packets(b"")
    packet[:8] = 255
    with pytest.raises(ValueError, match=f"may have {MOST_BYTES:,}"):
        message(lambda into: into.copy_(packet))


def test_ranks_with_another_secret_are_told_so() -> None:
    first, second = launches(2)
    other = replace(second, secret=SECRET[::-1])
    both = [partial(failed, partial(rendezvous.meet, one, CONFIG)) for one in (first, other)]
    errors = side_by_side(both)
    for rank, error in enumerate(errors):
        assert isinstance(error, ConfigError)
        assert error.param == "YAIE_RANK_SECRET"
        assert f"what rank {1 - rank} has left" in error.message
        assert "the same secret for every process" in error.message


def test_what_a_stranger_writes_into_the_store_is_neither_carried_out_nor_believed(
    evil: bytes, trace: Path
) -> None:
    """Before the ranks have met, and for gloo, which reads addresses from it as they lie in memory."""
    first, second = launches(2)
    told: list[Any] = side_by_side(
        [partial(rendezvous.meet, one, CONFIG) for one in (first, second)]
    )
    stranger = dist.TCPStore(first.address, first.port, is_master=False)
    stranger.set("steps/0/0", evil)  # for rank 0, which has not come so far
    stranger.set("yaie/terms", evil)
    calls = [
        partial(rendezvous.channels, second, told[1]),
        partial(rendezvous.check_terms, second, CONFIG, told[1]),
    ]
    for call in calls:
        with pytest.raises(RankError, match="has been tampered with"):
            call()
    stranger.set(rendezvous._key(1), evil)
    with pytest.raises(ConfigError, match="someone else writes to the port"):
        rendezvous._all(first, told[0].bare_store, rendezvous.NamedSeal(SECRET, "rendezvous"))
    assert not trace.exists()


def listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, port)) == 0


def test_the_store_listens_at_the_address_of_rank_0_and_no_other() -> None:
    (first,) = launches(1)
    kept = rendezvous.meet(first, CONFIG)
    assert listens("127.0.0.1", first.port)
    assert not listens("127.0.0.2", first.port)
    del kept


def test_ranks_of_torchrun_meet_in_a_store_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's own listens on all networks; it only holds, sealed, where theirs is."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    both = launches(2)
    launchers = dist.TCPStore(both[0].address, both[0].port, is_master=True, wait_for_workers=False)
    ports: list[int] = []
    real = rendezvous.listen_at

    def listen_at(host: str, port: int) -> socket.socket:
        listener = real(host, port)
        ports.append(listener.getsockname()[1])
        return listener

    monkeypatch.setattr(rendezvous, "listen_at", listen_at)
    found: list[Any] = side_by_side([partial(rendezvous.meet, one, CONFIG) for one in both])
    assert found[0].session == found[1].session
    assert not launchers.check([rendezvous._key(0)])
    assert [listens("127.0.0.1", ports[0]), listens("127.0.0.2", ports[0])] == [True, False]
    launchers.set("yaie/store0", b"60000")
    with pytest.raises(ConfigError, match="someone else writes"):
        rendezvous.meet(both[1], CONFIG)


def test_an_address_that_rank_0_does_not_have_is_named() -> None:
    launch = Launch(0, 2, 0, 1, "192.0.2.1", 29500, SECRET)
    with pytest.raises(ConfigError, match=r"cannot listen at 192\.0\.2\.1 port 29500 \(MASTER_A"):
        rendezvous.meet(launch, CONFIG)


def test_without_a_secret_ranks_do_not_begin_to_meet() -> None:
    with pytest.raises(ValueError, match="secret"):
        rendezvous.meet(replace(launches(1)[0], secret=b""), CONFIG)
