"""A schema is followed by lab 21's part within the limits of its contract, and by llguidance beyond
them; what a mask may take is limited for both."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.constrained import ask, run, schema
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.grammar import Choice, Concat, Grammar, Repeat, any_of, choice, concat, text
from yaie.core.request import Request
from yaie.engine.input.grammars import own_grammars
from yaie.engine.input.grammars.compiler import LibraryFollower
from yaie.engine.input.grammars.grammar_size import HUGE, GrammarSize, size_of
from yaie.engine.input.grammars.matchers import ForcedRun
from yaie.engine.input.grammars.own_grammars import OwnFollower
from yaie.parts import load_parts

PARTS = load_parts("none", labs=["speculative", "structured_output"])
LONG_CONST: dict[str, Any] = {"const": "word " * 24_000}
SHORTER: dict[str, Any] = {"const": "word " * 800}
WIDE_ENUM: dict[str, Any] = {"enum": [f"v{index:05d}" for index in range(12_000)]}
COLOURS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"enum": ["red", "green"]}, "b": {"type": "array", "items": {"const": 1}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LLMEngine:
    torch.set_num_threads(1)
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")
    return LLMEngine(model=str(folder), num_blocks=400)


def follower_of(request: Request) -> Any:
    assert request.matcher is not None
    return request.matcher._follower


def lark(text: str) -> Constraint:
    return Constraint("lark", text)


def array(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


# --- which of the two follows a schema ---


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        pytest.param({"enum": [*range(256)]}, {"enum": [*range(257)]}, id="places"),
        pytest.param({"const": "x" * 1022}, {"const": "x" * 1023}, id="run"),
        pytest.param(
            array({"type": "null"}, 60),
            array(array(array({"type": "null"}, 64), 64), 64),
            id="states",
        ),
        pytest.param(
            {"enum": ["x" * 900] * 17}, {"enum": ["x" * 900] * 19}, id="characters of the schema"
        ),
    ],
)
def test_the_part_is_given_what_its_limits_allow(
    engine: LLMEngine, within: dict[str, Any], beyond: dict[str, Any]
) -> None:
    for what, kind in ((within, OwnFollower), (beyond, LibraryFollower)):
        request = ask(engine, schema(what), max_tokens=3)
        assert type(follower_of(request)) is kind
    run(engine)


@pytest.mark.parametrize("what", [SHORTER, WIDE_ENUM], ids=["const of 4 kB", "enum of 12,000"])
def test_a_schema_beyond_the_limits_never_reaches_the_part(
    engine: LLMEngine, what: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of it took the part minutes."""
    if what is WIDE_ENUM:
        monkeypatch.setattr(
            engine.input._grammars._own, "_has_room_for", None
        )  # nor is it measured
    request = ask(engine, schema(what), max_tokens=5)
    assert type(follower_of(request)) is LibraryFollower
    (output,) = run(engine, request)
    assert request.error is None
    assert json.dumps(what).find(output.lstrip('"')) > 0


@pytest.mark.parametrize(
    "what",
    [LONG_CONST, {"enum": [1, LONG_CONST["const"]]}, {"const": [7] * 20_000},
     {"type": "object", "properties": {"x" * 20_000: {"type": "null"}}}],
    ids=["const of 120 kB", "in an enum", "a long list", "a name"],
)  # fmt: skip
def test_a_constant_that_takes_too_long_to_cut_into_tokens_is_refused(
    engine: LLMEngine, what: dict[str, Any]
) -> None:
    for constraint in (schema(what), lark(f"start: %json {json.dumps(what)}")):
        with pytest.raises(InvalidRequestError, match="more than 16384 characters"):
            ask(engine, constraint)


def test_a_property_whose_name_is_a_keyword_is_no_keyword(engine: LLMEngine) -> None:
    long = {"type": "null", "description": "x" * 20_000}
    names = ("const", "enum", "properties", "required")
    request = ask(engine, schema({"type": "object", "properties": dict.fromkeys(names, long)}))
    engine.abort(request.request_id)


def test_what_is_certain_is_cut_into_tokens_once(engine: LLMEngine) -> None:
    """llguidance cut all of what was left anew behind each token: of 120 kB a tenth of a second."""
    request = ask(engine, schema(SHORTER), max_tokens=40)
    follower = follower_of(request)
    calls = {"compute_ff_tokens": 0, "compute_bitmask": 0}

    class Counting:
        def __init__(self, matcher: Any) -> None:
            self._matcher = matcher

        def __getattr__(self, name: str) -> Any:
            if name in calls:
                calls[name] += 1
            return getattr(self._matcher, name)

    request.matcher._follower = LibraryFollower(Counting(follower._matcher))
    run(engine, request)
    assert request.num_output_tokens == 40
    assert calls["compute_ff_tokens"] <= 2
    assert calls["compute_bitmask"] <= 2


def test_a_run_is_found_again_behind_each_of_its_tokens_and_after_going_back() -> None:
    rng = random.Random(0)
    certain, at, searches = [*range(100)], 0, 0

    def find(most: int) -> list[int]:
        nonlocal searches
        searches += 1
        return certain[at : at + most]

    forced = ForcedRun(find, 16)
    for _ in range(400):
        if rng.random() < 0.7 and at < 99:
            forced.accepted(certain[at])
            at += 1
        else:
            back = rng.randint(0, min(at, 3))
            forced.rolled_back(back)
            at -= back
        most = rng.randint(1, 5)
        assert forced.next(most) == certain[at : at + most]
        assert forced.known == (certain[at] if at < 100 else None)
    assert searches < 100
    forced.accepted(-1)
    at = 50
    assert forced.known is None
    assert forced.next(2) == [50, 51]


LETTER, ANY = any_of(b"ab"), any_of(bytes(range(97, 123)))
DOUBLED: Grammar = text(b"!")
for _ in range(60):
    DOUBLED = Concat((DOUBLED, DOUBLED))


def nine() -> Grammar:
    return choice([any_of(bytes(range(97, 100 + index))) for index in range(9)])


SHARED: Grammar = text(b"!")
for _ in range(60):
    SHARED = Choice((concat(LETTER, SHARED), concat(ANY, SHARED)))


@pytest.mark.parametrize(
    ("grammar", "size"),
    [
        (text(b"abc"), GrammarSize(1, 3, 3)),
        (Concat(()), GrammarSize(0, 0, 0)),
        (choice([text(b"ab"), text(b"ac"), text(b"b")]), GrammarSize(3, 2, 5)),
        (concat(text(b"ab"), text(b"cd"), LETTER, text(b"e")), GrammarSize(1, 4, 6)),
        (Repeat(text(b"ab"), 3, 3), GrammarSize(1, 6, 6)),
        (Repeat(text(b"ab"), 0, 5), GrammarSize(1, 2, 10)),
        (Repeat(LETTER, 2, None), GrammarSize(1, 0, 3)),
        (concat(Repeat(LETTER, 0, None), ANY), GrammarSize(2, 0, 2)),
        (concat(*[Repeat(LETTER, 0, 1)] * 5, ANY), GrammarSize(6, 0, 6)),
        # Told apart by their first bytes, they are open together only up to there.
        (choice([concat(text(b"a"), Repeat(nine(), 0, 2)), concat(text(b"b"), Repeat(nine(), 0, 2))]),
         GrammarSize(9, 1, 38)),
        (choice([concat(Repeat(LETTER, 0, 1), nine()), concat(Repeat(LETTER, 0, 1), nine())]),
         GrammarSize(20, 0, 20)),
    ],
)  # fmt: skip
def test_a_grammar_is_measured(grammar: Grammar, size: GrammarSize) -> None:
    found = size_of(grammar)
    assert (found.run, found.states) == (size.run, size.states)
    assert size.places <= found.places <= 2 * size.places + 1


def test_a_grammar_of_endlessly_many_states_is_measured_by_its_nodes() -> None:
    found = size_of(DOUBLED)
    assert found.states >= HUGE
    assert found.run >= 2**60
    assert size_of(SHARED).states == 121  # what is shared at the end is one


def test_grammars_that_are_alive_share_the_room_for_states(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = engine.input._grammars._own
    assert own is not None
    mine = own_grammars.OwnGrammars(PARTS, own._tokenizer, VOCAB, own._eos_token_ids)
    first = mine.compiled(schema(COLOURS))
    assert first is not None
    monkeypatch.setattr(own_grammars, "MOST_PLACES_OF_ALL", 3 * first.size.states)
    assert mine.compiled(schema(COLOURS)) is None
    del first
    assert mine.compiled(schema(COLOURS)) is not None
