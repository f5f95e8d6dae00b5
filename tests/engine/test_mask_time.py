"""A mask that takes too long ends its request alone, and grammars that would end the process, or that
nobody can read, are refused."""

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.constrained import ask, run, schema
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.request import FailureKind, FinishReason, Request
from yaie.engine.input.grammars import compiler, own_grammars, work_clock
from yaie.engine.input.grammars.compiler import KeptGrammars, LibraryFollower
from yaie.engine.input.grammars.matchers import Matcher
from yaie.engine.input.grammars.schema_limits import MOST_LEVELS, levels_of


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LLMEngine:
    torch.set_num_threads(1)
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")
    return LLMEngine(model=str(folder), num_blocks=400)


def follower_of(request: Request) -> Any:
    assert request.matcher is not None
    return request.matcher._follower


# --- how long a mask may take ---


class Clock:
    """Processor time that passes with each look, and when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jump = 0.0

    def work_time(self) -> float:
        self.now += self.jump
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(work_clock, "work_time", clock.work_time)
    return clock


def test_a_garbage_collection_is_not_the_work_of_the_request_that_it_stops() -> None:
    heap = [{} for _ in range(200_000)]
    begin, work = time.thread_time(), work_clock.work_time()
    for _ in range(3):
        gc.collect()
    taken = time.thread_time() - begin
    assert len(heap) == 200_000
    assert work_clock.work_time() - work < taken / 2


STRING: dict[str, Any] = {"type": "string"}
OF_LIBRARY: dict[str, Any] = {"type": "integer", "minimum": 1}


@pytest.mark.parametrize("what", [STRING, OF_LIBRARY], ids=["part", "library"])
def test_a_mask_that_takes_too_long_ends_its_request_alone(
    engine: LLMEngine, clock: Clock, what: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = ask(engine, schema(what), max_tokens=30)
    other = ask(engine, schema({"const": "fine"}), max_tokens=30)
    follower, mask = follower_of(slow), follower_of(slow).mask

    def slowly() -> Any:
        found = mask()
        clock.now += 5.0
        return found

    monkeypatch.setattr(follower, "mask", slowly)
    text_of_other = run(engine, slow, other)[1]
    assert (slow.finish_reason, slow.failure) == (FinishReason.ERROR, FailureKind.CONSTRAINT)
    assert "cannot be kept to its grammar: it took more than 0.10 s" in (slow.error or "")
    assert text_of_other == '"fine"'
    assert other.error is None


def test_the_part_is_interrupted_in_the_middle_of_a_mask_and_not_asked_again(
    engine: LLMEngine, clock: Clock
) -> None:
    what = schema({"type": "string", "maxLength": 9, "title": "interrupted"})
    request = ask(engine, what, max_tokens=30)
    automaton = follower_of(request)._automaton
    before = automaton._calls
    clock.jump = 0.06  # a look or two are left
    run(engine, request)
    clock.jump = 0.0
    assert request.failure is FailureKind.CONSTRAINT
    assert "took too long" in (request.error or "")
    assert automaton._calls - before <= 4 * own_grammars.CALLS
    again = ask(engine, what, max_tokens=30)
    assert type(follower_of(again)) is LibraryFollower
    run(engine, again)
    assert again.error is None


def test_a_part_that_takes_too_long_for_the_first_mask_is_not_used(
    engine: LLMEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.jump = 1.0
    own = engine.input._grammars._own
    assert own is not None
    assert own.compiled(schema({"type": "string", "title": "slow to begin"})) is None
    assert "structured_output took more than" in caplog.text


def test_an_automaton_that_grows_too_large_ends_the_request_that_it_grows_for(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its states are made while it runs, a kilobyte each."""
    what = schema({"type": "string", "minLength": 40, "maxLength": 60, "title": "grows"})
    monkeypatch.setattr(own_grammars, "MOST_MADE", 100)
    request = ask(engine, what, max_tokens=300)
    automaton = follower_of(request)._automaton
    run(engine, request)
    assert request.failure is FailureKind.CONSTRAINT
    assert "more than 100 states" in (request.error or "")
    assert automaton.num_states < 200
    assert type(follower_of(ask(engine, what, max_tokens=2))) is LibraryFollower
    run(engine)


@pytest.mark.parametrize("ask_for", ["fill", "fill_ahead", "forced"])
def test_after_a_failure_nothing_may_come_and_nothing_is_forced(
    engine: LLMEngine, clock: Clock, ask_for: str
) -> None:
    request = Request("r", [5], SamplingParams(constraint=schema(STRING)), max_tokens=9)
    matcher: Matcher = engine.input._grammars.matcher(request)
    bits = np.ones((3, -(-VOCAB // 8)), np.uint8)
    clock.jump = 0.2
    calls: dict[str, Callable[[], Any]] = {
        "fill": lambda: matcher.fill(bits[0]),
        "fill_ahead": lambda: matcher.fill_ahead(bits, [7, 8]),
        "forced": lambda: matcher.forced(3),
    }
    calls[ask_for]()
    clock.jump = 0.0
    assert matcher.error is not None
    assert matcher.forced(3) == []
    matcher.fill_ahead(bits, [7, 8])
    assert not bits[0].any()


# --- what is kept ---


class Made:
    is_spent = False


def made_by(*bad: str) -> tuple[KeptGrammars, list[str]]:
    made: list[str] = []

    def compile(constraint: Constraint, by_library: bool) -> Any:
        made.append(constraint.text)
        if constraint.text in bad:
            raise InvalidRequestError("not this", param="response_format")
        return Made()

    return KeptGrammars(compile), made


def lark(text: str) -> Constraint:
    return Constraint("lark", text)


def test_grammars_are_kept_by_the_length_of_their_texts() -> None:
    kept, made = made_by()
    long = [lark(f"{index}" + "x" * (compiler.MOST_KEPT_CHARS // 4)) for index in range(4)]
    for constraint in long:
        kept.get(constraint)
    assert len(kept._kept) == 3
    kept.get(long[3])
    assert len(made) == 4
    kept.get(long[0])
    assert len(made) == 5
    for index in range(2 * compiler.MOST_KEPT):
        kept.get(lark(str(index)))
    assert len(kept._kept) == compiler.MOST_KEPT
    assert kept._num_chars < 300 * compiler.MOST_KEPT


def test_what_was_refused_is_refused_again_without_compiling_it() -> None:
    kept, made = made_by("bad")
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="not this") as error:
            kept.get(lark("bad"))
        assert error.value.param == "response_format"
    assert made == ["bad"]


# --- what would end the process, or be a fault of it ---


def chain(count: int, end: dict[str, Any]) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)}
    return {"$defs": {**defs, f"d{count}": end}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("count", [1500, 3000])
def test_a_chain_of_references_that_would_end_the_stack_is_refused(
    engine: LLMEngine, count: int
) -> None:
    """llguidance calls itself for each: the process ended with a segmentation fault."""
    deep = chain(count, {"type": "null"})
    for constraint in (schema(deep), lark(f"start: %json {json.dumps(deep)}")):
        with pytest.raises(InvalidRequestError, match=r"more than 800 levels deep"):
            ask(engine, constraint)


def test_levels_are_those_of_the_longest_way() -> None:
    assert levels_of({"type": "null"}) == 2
    assert levels_of({"a": [{"b": 1}]}) == 4
    assert levels_of(chain(1, {"type": "null"})) < levels_of(chain(2, {"type": "null"})) < 20
    tree = {"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}
    assert levels_of(tree) == 4
    wide = {"$defs": {f"d{i}": {"type": "null"} for i in range(2000)},
            "anyOf": [{"$ref": f"#/$defs/d{i}"} for i in range(2000)]}  # fmt: skip
    assert levels_of(wide) < 10 < MOST_LEVELS
    both = {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}},
            "$ref": "#/$defs/a"}  # fmt: skip
    assert levels_of(both) == 5 + 2 * 3


UNREADABLE: dict[str, Constraint] = {
    "a number of no value": Constraint("json_schema", '{"const": 1e999}'),
    "a limit of no value": Constraint("json_schema", '{"type": "number", "maximum": 1e999}'),
    "an integer of 5,000 digits": Constraint("json_schema", '{"const": ' + "9" * 5000 + "}"),
    "a multiple of 5,000 digits": Constraint(
        "json_schema", '{"multipleOf": 0.' + "3" * 5000 + "}"),
    "half a pair, escaped": Constraint("json_schema", '{"const": "\\ud800"}'),
    "half a pair": Constraint("json_schema", '{"const": "\ud800"}'),
    "half a pair as a name": Constraint(
        "json_schema", '{"type": "object", "properties": {"\ud800": {"type": "null"}}}'),
    "half a pair in lark": Constraint("lark", 'start: "\ud800"'),
    "a place of 5,000 digits": Constraint(
        "json_schema", '{"$ref": "#/anyOf/' + "9" * 5000 + '", "anyOf": [true]}'),
    "a digit that is none": Constraint("json_schema", '{"$ref": "#/anyOf/²", "anyOf": [true]}'),
    "5,000 optional properties": schema(
        {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(5000)}}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_and_never_a_fault(engine: LLMEngine, name: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        ask(engine, UNREADABLE[name])
    assert error.value.param == "response_format"
    error.value.message.encode()
    assert not engine.has_work
