"""The same over TCP: two hosts are two ends of a connection, here of one machine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.handover.conftest import GREEDY, PrefillServer, ask, make, until
from tests.engine.mixed import LONG, expect_same, run
from tests.judges.programs import free_port
from yaie import LLMEngine
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.request import Request
from yaie.engine.handover import link as linking
from yaie.engine.handover.address import Address, TcpAddress, UnixAddress, address_of
from yaie.engine.handover.role import Role

Prefill = Callable[..., PrefillServer]
Decode = Callable[..., LLMEngine]
SECRET = b"known to both sides"


@pytest.fixture
def address() -> Address:
    return TcpAddress("127.0.0.1", free_port())


def test_tokens_and_log_probabilities_are_those_of_one_engine(
    prefill: Prefill, decode: Decode, alone: list[Request]
) -> None:
    server, engine = prefill(SECRET, token_budget=16), decode(secret=SECRET, overlap="on")
    expect_same(engine, alone)
    expect_same(engine, alone)  # with what is cached by now
    assert engine.stats()["handovers"] > 0
    assert engine.stats()["handover_failures"] == 0
    until(lambda: server.engine.stats()["used_blocks"] == 0)
    server.engine.check()


def test_a_prefill_server_that_goes_loses_what_it_had_begun_and_another_takes_its_place(
    prefill: Prefill, decode: Decode, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "AGAIN_SECONDS", 0.01)
    server, engine = prefill(token_budget=8), decode()
    prompts = [LONG[start:] for start in range(4)]
    requests = [engine.add_request(prompt, GREEDY)[0] for prompt in prompts]
    server.stop()
    run(engine)
    one_engine = make(folder)
    assert [one.token_ids for one in requests] == [
        ask(one_engine, prompt).token_ids for prompt in prompts
    ]
    assert engine.stats()["handover_failures"] > 0
    before = engine.stats()["handovers"]
    prefill()  # at the same port, at once
    until(lambda: engine.stats()["handover_linked"] == 1)
    ask(engine, LONG[7:60])
    assert engine.stats()["handovers"] == before + 1


def test_a_decode_server_that_goes_leaves_nothing_in_the_prefill_server(
    prefill: Prefill, decode: Decode
) -> None:
    server, engine = prefill(token_budget=8), decode()
    for start in range(4):
        engine.add_request(LONG[start:], replace(GREEDY, max_tokens=2))
    until(lambda: server.engine.stats()["used_blocks"] != 0)
    engine.close()
    until(lambda: server.engine.stats()["used_blocks"] == 0)
    server.engine.check()
    other = decode()
    ask(other, LONG[9:60])
    assert other.stats()["handovers"] == 1


@pytest.mark.parametrize(
    ("there", "here", "settings", "said"),
    [
        (None, None, {"block_size": 32}, "block_size is 16 here and 32 there"),
        (SECRET, None, {}, "it has a secret .* and the decode server has none"),
        (None, SECRET, {}, "it has no secret .* and the decode server has one"),
        (SECRET, SECRET[::-1], {}, "its secret .* is another one"),
    ],
    ids=["layout", "none here", "none there", "other secret"],
)
def test_what_does_not_fit_is_refused_by_name_at_the_start(
    prefill: Prefill,
    decode: Decode,
    there: bytes | None,
    here: bytes | None,
    settings: dict[str, Any],
    said: str,
) -> None:
    prefill(there)
    with pytest.raises(ConfigError, match=f"cannot help: {said}"):
        decode(secret=here, **settings)


def test_a_prefill_server_of_another_model_that_comes_later_is_not_asked(
    prefill: Prefill, decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(linking, "REFUSED_SECONDS", 0.01)
    engine = decode()
    wrong = prefill(dtype="bfloat16")
    until(lambda: "dtype" in engine.side._link.refused)  # type: ignore[attr-defined]
    assert ask(engine, LONG[:40]).num_output_tokens == GREEDY.max_tokens
    assert engine.stats()["handovers"] == 0
    wrong.stop()
    prefill()
    until(lambda: engine.stats()["handover_linked"] == 1)


def test_where_nothing_can_be_listened_at_is_refused(address: Address) -> None:
    def refused(other: Address) -> str:
        with pytest.raises(ConfigError) as error:
            Role("prefill", other, 1).check(EngineConfig())
        return str(error.value)

    with address.listen():
        assert f"cannot listen at {address}: Address already in use" in refused(address)
    assert "no address of this machine" in refused(TcpAddress("no.such.host.invalid", 9000))
    assert "cannot listen" in refused(TcpAddress("192.0.2.1", 9000))


def test_it_listens_at_the_address_given_and_no_other(address: Address) -> None:
    with address.listen() as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.2:9000", TcpAddress("10.0.0.2", 9000)),
        ("prefill.local:1", TcpAddress("prefill.local", 1)),
        ("[::1]:9000", TcpAddress("::1", 9000)),
    ],
)
def test_a_host_and_a_port_are_no_path(text: str, found: Address) -> None:
    assert address_of(text) == found
    assert str(found) == text
    assert isinstance(address_of(f"./{text}"), UnixAddress)


@pytest.mark.parametrize("text", ["far:0", "far:65536", ":9000", "far:", "::1:9000", "far:port"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="handover: "):
        address_of(text)


def test_a_network_that_others_reach_is_warned_of_without_a_secret(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(folder, Role("prefill", TcpAddress("0.0.0.0", free_port()), 1, SECRET)).close()
    assert "every host" not in caplog.text
    make(folder, Role("prefill", TcpAddress("0.0.0.0", free_port()), 1)).close()
    assert "every host that reaches 0.0.0.0" in caplog.text
