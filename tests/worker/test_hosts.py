"""Ranks that a launcher has started tell each other what they have to, and notice when one is gone."""

import errno
import re
import socket
import time
from functools import partial
from typing import Any

import pytest
import torch

from tests.server.conftest import within
from tests.worker.test_rank_groups import side_by_side
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, RankError
from yaie.core.step import StepResult
from yaie.system.seals import NamedSeal
from yaie.worker.parallel import rendezvous
from yaie.worker.parallel.hosts import BEAT, HostPipe, Hosts
from yaie.worker.parallel.launch import Launch
from yaie.worker.parallel.members import Gone, Heard
from yaie.worker.parallel.messages import MESSAGES, Broken, Done, End, Failure
from yaie.worker.parallel.packets import FIRST_BYTES, message, packets

CONFIG = EngineConfig(pipeline_parallel=3)
BIG = b"x" * (3 * FIRST_BYTES)
LONG = StepResult(1, token_ids=[list(range(FIRST_BYTES))])
SECRET = b"of all ranks of these tests"


@pytest.mark.parametrize("size", [0, 1, FIRST_BYTES - 9, FIRST_BYTES - 8, FIRST_BYTES - 7, 50_000])
def test_a_message_of_any_length_arrives_as_it_was(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    sent = list(packets(data))
    assert len(sent) == (1 if size <= FIRST_BYTES - 8 else 2)
    assert message(lambda into: into.copy_(sent.pop(0))) == data
    assert not sent


def launches(size: int = 3, address: str = "127.0.0.1") -> list[Launch]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return [Launch(rank, size, 0, 1, address, port, SECRET) for rank in range(size)]


def met() -> tuple[Hosts, list[HostPipe]]:
    first, *others = launches()
    calls: list[Any] = [partial(Hosts, first, CONFIG)]
    calls += [partial(HostPipe, one, CONFIG) for one in others]
    hosts, *pipes = side_by_side(calls)
    hosts.start()
    return hosts, pipes


def heard(hosts: Hosts, count: int) -> list[Any]:
    found: list[Any] = []

    def all_there() -> bool:
        found.extend(hosts.hear(0.1))
        return len(found) >= count

    within(30, all_there)
    return sorted(found, key=lambda one: one.rank)


def test_what_is_sent_reaches_all_and_what_they_say_comes_back_until_they_are_gone() -> None:
    hosts, pipes = met()
    for data in (b"a", BIG):
        calls: list[Any] = [partial(hosts.send, data), *(pipe.recv_bytes for pipe in pipes)]
        assert side_by_side(calls) == [None, data, data]
    for number, pipe in enumerate(pipes):
        pipe.send_bytes(MESSAGES.encode(Done(number, None, LONG)))
    assert heard(hosts, 2) == [Heard(rank, Done(rank - 1, None, LONG)) for rank in (1, 2)]
    began = time.monotonic()
    hosts.ring()
    assert hosts.hear(30) == []
    assert time.monotonic() - began < 30
    pipes[0].send_bytes(MESSAGES.encode(Broken(Failure("", "boom"))))
    heard(hosts, 1)
    hosts.settle(0.5)
    for pipe in pipes:  # silent from here on
        pipe._is_over.set()
        pipe.send_bytes(BEAT)
    gone = heard(hosts, 2)
    assert [(type(one), one.rank, one.has_said) for one in gone] == [
        (Gone, 1, True),
        (Gone, 2, False),
    ]
    assert any("Timed out" in one.how for one in gone)  # the first ends the connection of both
    ends = side_by_side([partial(hosts.end, ""), *(pipe.recv_bytes for pipe in pipes)])
    assert [MESSAGES.decode(data) for data in ends[1:]] == [End("")] * 2
    for pipe in pipes:
        pipe.settle(0.2)
        with pytest.raises(EOFError):
            pipe.recv_bytes()


def test_a_rank_that_was_started_differently_says_what_differs() -> None:
    store = torch.distributed.HashStore()
    met_at = rendezvous.Rendezvous(store)
    store.set("yaie/terms", rendezvous.json.dumps(rendezvous._terms(CONFIG)))
    launch = Launch(1, 3, 0, 1, "127.0.0.1", 9)
    rendezvous.check_terms(launch, EngineConfig(pipeline_parallel=3, threads=7), met_at)
    with pytest.raises(ConfigError, match="rank 1 has block_size 32, and rank 0 16: start all"):
        rendezvous.check_terms(launch, EngineConfig(pipeline_parallel=3, block_size=32), met_at)


def test_an_address_that_one_host_alone_reaches_is_refused() -> None:
    rendezvous._check_addresses(["127.0.0.1", "127.0.0.1"])
    rendezvous._check_addresses(["10.0.0.1", "10.0.0.2"])
    with pytest.raises(ConfigError, match=r"rank 0 would listen at 127\.0\.1\.1, .* GLOO_SOCKET"):
        rendezvous._check_addresses(["127.0.1.1", "10.0.0.2"])


def test_ranks_meet_at_an_address_of_any_kind() -> None:
    with socket.socket(socket.AF_INET6) as six:
        has_six = six.connect_ex(("::1", 9)) in (0, errno.ECONNREFUSED)
    for address in ["localhost", *["::1"] * has_six]:
        both = launches(2, address)
        found = side_by_side([partial(rendezvous.meet, one, CONFIG) for one in both])
        assert all(one.address in ("127.0.0.1", "::1") for one in found)


def test_a_rank_that_nobody_meets_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "START_SECONDS", 1.0)
    with pytest.raises(RankError, match=r"rank 1 did not meet rank 0 at 127\.0\.0\.1 port"):
        rendezvous.meet(launches()[1], CONFIG)


def refused(launch: Launch) -> str:
    with pytest.raises(RankError) as error:
        rendezvous.meet(launch, CONFIG)
    return error.value.message


@pytest.mark.parametrize(
    ("there", "missing"), [([0, 2], "ranks 1, 3 of 4"), ([0], "ranks 1, 2, 3 of 4")]
)
def test_ranks_that_do_not_come_are_named_by_those_that_have(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    there: list[int],
    missing: str,
) -> None:
    monkeypatch.setattr(rendezvous, "START_SECONDS", 6.0)
    monkeypatch.setattr(rendezvous, "TELL_SECONDS", 3.0)  # by then all that come are there
    made = launches(4)
    with caplog.at_level("WARNING"):
        said = side_by_side([partial(refused, made[rank]) for rank in there])
    assert said[0].startswith(f"{missing} did not come to 127.0.0.1 port")
    assert "whether its host reaches that port" in said[0]
    # By then rank 0 may be gone.
    assert all(missing.removesuffix(" of 4") in one for one in said)
    assert f"rank 0 waits for {missing.removesuffix(' of 4')}" in caplog.text


def test_a_rank_whose_rank_0_gives_up_says_who_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, second, _ = launches()
    store = rendezvous.dist.TCPStore(
        second.address, second.port, is_master=True, wait_for_workers=False
    )
    here = rendezvous._LEFT.encode(rendezvous._Here("127.0.0.1", "1"))
    store.set(rendezvous._key(0), NamedSeal(SECRET, "rendezvous").close(rendezvous._key(0), here))
    stores = [store]

    def look(seconds: float) -> None:
        stores.clear()  # its process has ended

    del store
    monkeypatch.setattr(rendezvous.time, "sleep", look)
    assert re.match(
        r"rank 0 has ended at 127\.0\.0\.1 port \d+ while rank 2 had not come", refused(second)
    )


def test_a_port_where_something_else_listens_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} of 127.0.0.1 is in use \(MASTER_PORT\)"
        ):
            rendezvous.meet(Launch(0, 2, 0, 1, "127.0.0.1", port, SECRET), CONFIG)
