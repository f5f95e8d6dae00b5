"""What a prompt computed elsewhere gives, and what happens when it does not come."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.handover.conftest import GREEDY, PrefillServer, ask, until
from tests.engine.mixed import LONG, add_all, expect_same, run
from yaie import LLMEngine, SamplingParams
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.request import FinishReason, Request
from yaie.engine.asks.arrays import ints
from yaie.engine.background.messages import Failed as EngineFailed
from yaie.engine.background.messages import Recorded, Unwatch, Watch
from yaie.engine.handover import decode as deciding
from yaie.engine.handover import link as linking
from yaie.engine.handover.address import Address, UnixAddress
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import greet
from yaie.engine.handover.layout import layout_of
from yaie.engine.handover.messages import Blocks, Failed, Message, Prompt, Reply, Verdict
from yaie.engine.handover.role import Role

Prefill = Callable[..., PrefillServer]
Decode = Callable[..., LLMEngine]


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ({}, {}),
        ({"token_budget": 16}, {"overlap": "on"}),
        ({"overlap": "on"}, {"num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12}),
        ({"num_blocks": 12, "watermark": 0.0}, {"speculate": "ngram", "token_budget": 16}),
    ],
    ids=["roomy", "chunks", "tight here", "tight there"],
)
def test_tokens_and_log_probabilities_are_those_of_one_engine(
    prefill: Prefill, decode: Decode, alone: list[Request], there: Any, here: Any
) -> None:
    server, engine = prefill(**there), decode(**here)
    expect_same(engine, alone)
    expect_same(engine, alone)  # with what is cached by now
    assert engine.stats()["handovers"] > 0
    until(lambda: server.engine.stats()["used_blocks"] == 0)
    server.engine.check()


def test_only_blocks_that_lack_are_handed_over(prefill: Prefill, decode: Decode) -> None:
    prefill()
    engine = decode()
    ask(engine, LONG[:40])  # two full blocks, and eight tokens that are computed here
    stats = engine.stats()
    assert (stats["handovers"], stats["handover_blocks"]) == (1, 2)
    assert stats["computed_tokens"] == 8 + GREEDY.max_tokens - 1  # type: ignore[operator]
    ask(engine, LONG[:70])
    stats = engine.stats()
    assert (stats["handovers"], stats["handover_blocks"]) == (2, 2 + 2)
    ask(engine, LONG[:70])
    assert engine.stats()["handovers"] == 2


def test_a_short_rest_is_computed_where_it_came(prefill: Prefill, decode: Decode) -> None:
    prefill()
    engine = decode(least_tokens=41)
    ask(engine, LONG[:40])
    assert engine.stats()["handovers"] == 0
    ask(engine, LONG[20:61])
    assert engine.stats()["handovers"] == 1


def test_two_requests_for_one_prompt_store_its_blocks_once(
    prefill: Prefill, decode: Decode
) -> None:
    prefill()
    engine = decode()
    pair = [engine.add_request(LONG[:60], GREEDY)[0] for _ in range(2)]
    run(engine)
    assert pair[0].token_ids == pair[1].token_ids
    stats = engine.stats()
    assert stats["computed_tokens"] == 2 * (60 - 48 + GREEDY.max_tokens - 1)  # type: ignore[operator]
    assert stats["handover_failures"] == 0


def test_a_request_that_waits_for_its_blocks_can_be_aborted(
    prefill: Prefill, decode: Decode
) -> None:
    server, engine = prefill(), decode()
    (doomed,) = engine.add_request(LONG, GREEDY)
    kept = engine.add_request(LONG[5:], SamplingParams(temperature=0, max_tokens=4, n=2))
    assert engine.stats()["num_waiting"] == 3
    assert engine.abort(doomed.request_id)
    assert not engine.abort(doomed.request_id)
    assert engine.abort(kept[0].request_id)
    run(engine)
    assert [one.finish_reason for one in (doomed, kept[0])] == [FinishReason.ABORT] * 2
    assert kept[1].num_output_tokens == 4
    assert engine.stats()["used_blocks"] == 0
    until(lambda: not server.engine.has_work)
    assert server.engine.stats()["used_blocks"] == 0


def test_a_request_that_cannot_be_queued_any_more_ends_with_an_error(
    prefill: Prefill, decode: Decode
) -> None:
    prefill()
    engine = decode()
    params = replace(GREEDY, max_tokens=100)  # it still runs when the other's blocks come
    (kept,) = engine.add_request(LONG, params, request_id="same")
    (late,) = engine.add_request(LONG[3:], params, request_id="same")
    ends = {}
    while engine.has_work:
        for output in engine.step():
            if output.finish_reason is not None:
                ends[len(ends)] = (output.finish_reason, output.error)
    assert kept.num_output_tokens == params.max_tokens
    assert late.finish_reason is FinishReason.ERROR
    assert "in use" in (late.error or "")
    assert len(ends) == 2


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_what_queueing_raises_ends_no_engine(
    prefill: Prefill, decode: Decode, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: from a learner's scheduler or tree, for instance."""
    server, engine = prefill(), decode()
    broken = (server.engine if side == "prefill" else engine).machine_parts.core
    monkeypatch.setattr(broken, "add_request", _raises)
    (request,) = engine.add_request(LONG, GREEDY)
    run(engine)
    if side == "prefill":  # computed here then
        assert request.num_output_tokens == GREEDY.max_tokens
        assert engine.stats()["handover_failures"] == 1
    else:
        assert request.finish_reason is FinishReason.ERROR
        assert "ZeroDivisionError" in (request.error or "")
    monkeypatch.undo()
    (again,) = engine.add_request(LONG[1:], GREEDY)
    run(engine)
    assert again.num_output_tokens == GREEDY.max_tokens
    until(lambda: not server.engine.has_work)


def _raises(request: Request) -> None:
    raise ZeroDivisionError


def test_when_the_prefill_server_goes_prompts_are_computed_here(
    prefill: Prefill, decode: Decode, alone: list[Request]
) -> None:
    server, engine = prefill(token_budget=8), decode()
    requests = add_all(engine)
    server.stop()
    run(engine)
    assert [one.token_ids for one in requests] == [one.token_ids for one in alone]
    assert engine.stats()["handover_failures"] > 0


def test_a_prefill_server_that_comes_later_is_found(
    prefill: Prefill, decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "AGAIN_SECONDS", 0.01)
    engine = decode()
    ask(engine, LONG[:40])
    assert engine.stats()["handovers"] == 0
    prefill()
    until(lambda: engine.stats()["handover_linked"] == 1)
    ask(engine, LONG[20:70])
    assert engine.stats()["handovers"] == 1


def test_a_prefill_server_takes_no_nonsense(
    prefill: Prefill, decode: Decode, address: Address
) -> None:
    server = prefill()
    wire = address.connect()
    greet(wire, layout_of(server.engine.model, 16), None)
    told: list[Any] = []
    channel = Channel(wire, 0, lambda c, m, d: told.append(m), lambda c: None)
    channel.start()
    for message in (Blocks(1), Prompt(2, ints([3]), -1)):
        channel.send(message)
    channel.send(Prompt(3, ints([10**6]), 0))
    channel.send(Prompt(4, ints([5] * 20), 7))
    until(lambda: len(told) == 2)
    assert [one.number for one in told] == [3, 4]
    channel.close()
    engine = decode()
    ask(engine, LONG[:40])
    assert engine.stats()["handovers"] == 1
    assert server.engine.stats()["handover_failures"] == 2


def test_who_watches_a_prefill_server_sees_its_own_requests_alone(
    prefill: Prefill, decode: Decode
) -> None:
    server = prefill()
    server.send(Watch(1))
    ask(decode(), LONG[:40])
    until(lambda: server.engine.stats()["handovers"] == 1)
    server.send(Unwatch(1))
    server.stop()
    records = [
        json.loads(line) for one in server.events if isinstance(one, Recorded) for line in one.lines
    ]
    assert records[0]["kind"] == "header"
    assert not any(record.get("rows") for record in records)
    assert not any(isinstance(one, EngineFailed) for one in server.events)


class Silent:
    """A prefill server that answers what it is told to answer, to one decode server."""

    def __init__(self, address: Address, answer: Callable[[Channel, Message], None]) -> None:
        self._address, self._listener = address, address.listen()
        self._answer = answer
        threading.Thread(target=self._accept).start()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        wire = self._address.wire(connection)
        wire.receive(0)
        wire.send(Reply("", "", ""))
        wire.receive(0)
        wire.send(Verdict(""))
        self.channel = Channel(wire, 0, lambda c, m, d: self._answer(c, m), lambda c: None)
        self.channel.start()

    def close(self) -> None:
        self.channel.close()
        self._listener.close()


@pytest.mark.parametrize("answer", ["nothing", "failed", "nonsense"])
def test_a_prompt_that_does_not_come_is_computed_here(
    decode: Decode, address: Address, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(deciding, "LONGEST_SECONDS", 0.05)

    def said(channel: Channel, message: Message) -> None:
        if isinstance(message, Prompt) and answer == "failed":
            channel.send(Failed(message.number, "no room"))
        elif isinstance(message, Prompt) and answer == "nonsense":
            channel.send(Blocks(message.number), np.zeros(3, dtype=np.uint8))

    server = Silent(address, said)
    engine = decode()
    assert ask(engine, LONG[:40]).num_output_tokens == GREEDY.max_tokens
    assert engine.stats()["handover_failures"] == 1
    server.close()


def test_nothing_is_left_open(prefill: Prefill, decode: Decode) -> None:
    prefill()
    engine = decode()
    ask(engine, LONG[:40])
    before = len(os.listdir("/proc/self/fd"))
    for start in range(1, 20):
        ask(engine, LONG[start : start + 50])
    assert engine.stats()["handovers"] == 20
    time.sleep(0.01)
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"block_size": 32}, "block_size is 32 here and 16 there"), ({"dtype": "bfloat16"}, "dtype")],
)
def test_another_layout_is_refused_at_the_start(
    prefill: Prefill, decode: Decode, settings: dict[str, Any], said: str
) -> None:
    prefill()
    with pytest.raises(ConfigError, match="cannot help") as refused:
        decode(**settings)
    # The prefill server says it, which sees it the other way round.
    swapped = said.replace("32 here and 16", "16 here and 32")
    assert swapped in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"prefix_caching": False},
        {"tensor_parallel": 2},
        {"pipeline_parallel": 2},
        {"kv_dtype": "int8"},
        {"speculate": "draft"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_does_not_go_together_is_refused_by_name(path: Path, settings: dict[str, Any]) -> None:
    (name,) = settings
    for kind in ("prefill", "decode"):
        with pytest.raises(ConfigError, match=f"{name} .* does not go with role '{kind}'"):
            Role(kind, UnixAddress(path), 1).check(EngineConfig(**settings))  # type: ignore[arg-type]


def test_a_path_that_cannot_be_listened_at_is_refused(prefill: Prefill, path: Path) -> None:
    def refused(other: Path) -> str:
        with pytest.raises(ConfigError) as error:
            Role("prefill", UnixAddress(other), 1).check(EngineConfig())
        return str(error.value)

    prefill()
    assert "another prefill server listens" in refused(path)
    assert "there is no folder" in refused(path / "nowhere" / "socket")
    plain = path.parent / "file"
    plain.touch()
    assert "no socket" in refused(plain)
    assert "too long" in refused(path.parent / ("x" * 104))
    with pytest.raises(FileNotFoundError):
        UnixAddress(path.parent / "nobody").connect()


def test_the_socket_is_for_this_user_alone_and_goes_with_its_server(
    prefill: Prefill, path: Path
) -> None:
    server = prefill()
    assert path.stat().st_mode & 0o777 == 0o600
    server.stop()
    assert not path.exists()
