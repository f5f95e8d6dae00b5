"""A technique is a room: this file holds all of one that does nothing, and no token changes.

It hangs on each hook: a rule and a readout of the worker, what requests ask of them, a plan stage and a
step observer. CONTRIBUTING shows it to whoever adds one that does something.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.mixed import POOLS, add_all, close, run
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request
from yaie.core.step import Arrays, Ints, NewSeats, StepResult
from yaie.engine import asks
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask, Vocabulary
from yaie.worker import readouts, rules
from yaie.worker.readouts.base import Computed, Readout
from yaie.worker.rows import Rows
from yaie.worker.rules.base import LogitsRule

CALLS: Counter[str] = Counter()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


# ANCHOR: technique
class NothingRule(LogitsRule):
    """In the worker: told once of each request that asks, called before the sampler draws for one."""

    name = "nothing"

    def forget(self, seat: int) -> None:
        CALLS["forget"] += 1

    def remember(self, seats: Ints, told: Arrays, new: NewSeats) -> None:
        assert told["weights"].tolist() == [0.0] * len(seats)
        CALLS["remember"] += len(seats)

    def apply(self, logits: Tensor, rows: Rows) -> None:
        CALLS["apply"] += 1


class NothingReadout(Readout):
    """In the worker: made when a step is asked for it, behind its forward pass."""

    def __init__(self, computed: Computed) -> None:
        self._rows = computed.asked("nothing")["rows"]

    def collect(self, result: StepResult) -> None:
        result.extras["nothing"] = {"rows": self._rows}


class NothingAsked(Ask):
    """In control: says what the rule and the readout are to know, and notes what comes back."""

    name = "nothing"

    def enter(self, asking: Sequence[tuple[int, Request]], vocabulary: Vocabulary) -> Arrays:
        weights = np.zeros(len(asking), np.float32)
        return {"rows": ints([position for position, _ in asking]), "weights": weights}

    def wants(self, item: ScheduledRequest) -> bool:
        return item.samples

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        return {"rows": ints([row for row, _ in asking])}

    def told(self, asked: Arrays, told: Arrays | None) -> Iterator[tuple[int, Any]]:
        assert told is not None
        return ((row, None) for row in told["rows"].tolist())

    def note(self, item: ScheduledRequest, value: Any) -> None:
        CALLS["note"] += 1


class NothingStage:
    """In control: sees each plan before it is sent, and what came of it."""

    def extend(self, plan: StepPlan) -> None:
        CALLS["extend"] += 1

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        CALLS["stepped"] += 1


# ANCHOR_END: technique


def asks_for_nothing(request: Request) -> bool:
    """Half of all requests."""
    return len(request.token_ids) % 2 == 1


@contextmanager
def registered() -> Iterator[None]:
    """The technique, hung on its hooks as one that stays would be by a line in each table."""
    line = (asks_for_nothing, NothingAsked())
    rules.RULES["nothing"] = NothingRule
    readouts.READOUTS["nothing"] = NothingReadout
    for table in (asks.RULED, asks.READ):
        table.append(line)
    try:
        yield
    finally:
        del rules.RULES["nothing"], readouts.READOUTS["nothing"]
        for table in (asks.RULED, asks.READ):
            table.remove(line)


def engine_of(folder: str, overlap: Any, pool: str) -> closing[LLMEngine]:
    return closing(LLMEngine(model=folder, overlap=overlap, **POOLS[pool]))


@pytest.mark.parametrize("pool", ["roomy", "chunks", "recompute"])
@pytest.mark.parametrize("overlap", ["off", "on"])
def test_an_engine_with_it_gives_the_tokens_of_one_without(
    folder: str, pool: str, overlap: Any
) -> None:
    CALLS.clear()
    with engine_of(folder, overlap, pool) as plain:
        expected = add_all(plain)
        texts = run(plain)
    assert not CALLS
    with registered(), engine_of(folder, overlap, pool) as engine:
        stage = NothingStage()
        engine.machine_parts.hooks.stages.append(stage)
        engine.machine_parts.hooks.observers.append(stage)
        requests = add_all(engine)
        assert run(engine) == texts
    # A seat that has asked is forgotten when it changes hands.
    assert set(CALLS) - {"forget"} == {"remember", "apply", "note", "extend", "stepped"}
    for one, other in zip(requests, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert close(one.logprobs, other.logprobs)
