"""Schemas of lab 21's subset are followed by its part, all others by llguidance; both alike."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from tests.engine.constrained import EOS, PERSON, ask, run, schema
from tests.learner import faults_of, hand_in_faulty
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.errors import PartError
from yaie.core.request import FinishReason, Request
from yaie.engine.input.grammars import own_grammars
from yaie.engine.input.grammars.compiler import Grammars, LibraryFollower
from yaie.engine.input.grammars.matchers import Matcher
from yaie.engine.input.grammars.own_grammars import OwnFollower
from yaie.parts import load_parts

PARTS = load_parts("none", labs=["speculative", "structured_output"])
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order_number": {"type": "integer"},
        "is_confirmed": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
        "payment_method": {"enum": ["card", "grün", None, [1, {"a": 2.5}]]},
        "note": {"anyOf": [{"type": "null"}, {"const": "late"}]},
    },
    "required": ["order_number", "lines", "payment_method"],
    "additionalProperties": False,
}
"""Without strings: there llguidance refuses some escapes and U+007F, which JSON has."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LLMEngine:
    torch.set_num_threads(1)
    folder = tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")
    return LLMEngine(model=str(folder), num_blocks=400)


@pytest.fixture(scope="module")
def tutor() -> LLMEngine:
    return LLMEngine(model="tutor", num_blocks=64)


def follower_of(request: Request) -> type:
    return type(request.matcher._follower)


def test_schemas_of_the_subset_go_to_the_part_and_others_to_the_library(engine: LLMEngine) -> None:
    ours, theirs = ask(engine, schema(ORDER)), ask(engine, schema(PERSON))
    object_ = ask(engine, Constraint("json_object"), max_tokens=2)
    assert follower_of(ours) is OwnFollower
    assert {follower_of(theirs), follower_of(object_)} == {LibraryFollower}  # PERSON has a minimum
    run(engine)


@pytest.mark.parametrize("seed", range(6))
def test_outputs_are_valid_and_end_where_they_may(engine: LLMEngine, seed: int) -> None:
    tagged = {
        **ORDER,
        "properties": {**ORDER["properties"], "note": {"type": "string", "maxLength": 5}},
    }
    request = ask(engine, schema(tagged), seed, logit_bias=((EOS, 100.0),))
    (text,) = run(engine, request)
    if request.finish_reason == "stop":
        jsonschema.validate(json.loads(text), tagged)
    else:
        assert request.finish_reason == "length"


def matchers(engine: LLMEngine, what: Any, **params: Any) -> tuple[Request, list[Matcher]]:
    """A request, and the part's and the library's matcher of its output."""
    given = SamplingParams(constraint=schema(what), **params)
    request = Request("r", [5], given, max_tokens=300)
    facts = (engine.tokenizer, engine.model.adapter.vocab_size, engine.model.eos_token_ids)
    made = [
        Grammars(*facts, PARTS, library_only=library).matcher(request) for library in (False, True)
    ]
    assert [type(m._follower) for m in made] == [OwnFollower, LibraryFollower]
    return request, made


def bits_of(matcher: Matcher, width: int = VOCAB) -> list[int]:
    bits = np.zeros(-(-width // 8), np.uint8)
    matcher.fill(bits)
    assert matcher.error is None
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_the_part_lets_through_what_the_library_does(engine: LLMEngine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    request, (ours, theirs) = matchers(engine, ORDER, min_tokens=seed)
    for _ in range(120):
        allowed, others = bits_of(ours), bits_of(theirs)
        if ours.forced(1):  # both take one token; theirs may be cut in another way
            texts = [engine.tokenizer.token_bytes(token) for token in (*allowed, *others)]
            assert len(texts) == 2
            assert texts[0].startswith(texts[1]) or texts[1].startswith(texts[0])
        else:
            assert allowed == others
        request.token_ids.append(int(rng.choice(allowed)))
        if request.token_ids[-1] == EOS:
            break
    assert bits_of(ours) == bits_of(theirs)


def test_both_say_what_is_forced(tutor: LLMEngine) -> None:
    request, (ours, theirs) = matchers(tutor, ORDER)
    encode = tutor.tokenizer.encode
    request.token_ids += encode('{"', add_special_tokens=False)
    texts = [tutor.tokenizer.decode(matcher.forced(40)) for matcher in (ours, theirs)]
    assert 'order_number"'.startswith(texts[0])
    assert len(texts[0]) >= len("order_number")
    assert texts[1].startswith("order_numb") or not texts[1]


@pytest.mark.parametrize("which", [0, 1], ids=["part", "library"])
def test_masks_behind_drafts_are_those_behind_tokens(tutor: LLMEngine, which: int) -> None:
    width, rng = tutor.model.adapter.vocab_size, np.random.default_rng(which)
    first, made = matchers(tutor, ORDER, min_tokens=3)
    seen = []
    for _ in range(60):
        seen.append(bits_of(made[which], width))
        first.token_ids.append(int(rng.choice(seen[-1])))
        if first.token_ids[-1] in tutor.model.eos_token_ids:
            break
    drafts = first.token_ids[1:]
    seen.append(bits_of(made[which], width))
    again, made = matchers(tutor, ORDER, min_tokens=3)
    rows = np.zeros((len(drafts) + 1, -(-width // 8)), np.uint8)
    made[which].fill_ahead(rows, drafts)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    assert [np.flatnonzero(row).tolist() for row in bits] == seen
    assert bits_of(made[which], width) == seen[0]
    again.token_ids += drafts
    assert bits_of(made[which], width) == seen[-1]


def test_behind_a_draft_that_may_not_come_nothing_is_looked_at(engine: LLMEngine) -> None:
    request, (ours, _) = matchers(engine, ORDER)
    before = bits_of(ours)
    wrong = next(token for token in range(5, VOCAB) if token not in before)
    for drafts in ([wrong, wrong], [EOS, before[0]]):
        rows = np.zeros((3, -(-VOCAB // 8)), np.uint8)
        ours.fill_ahead(rows, drafts)
        assert (rows[1:] == 0xFF).all()
        assert bits_of(ours) == before
    assert request.num_output_tokens == 0


def test_forced_runs_save_a_third_of_the_forward_passes(tutor: LLMEngine) -> None:
    values = {  # of few tokens: a model may go on with the digits of a number for ever
        "order_number": {"enum": [17, 4711]},
        "is_confirmed": {"type": "boolean"},
        "payment_method": {"enum": ["card", "invoice"]},
    }
    record = {"type": "object", "properties": values, "required": list(values),
              "additionalProperties": False}  # fmt: skip
    params = SamplingParams(temperature=0, max_tokens=200, constraint=schema(record))
    before = tutor.stats()
    asked = tutor.encode_chat([{"role": "user", "content": "Describe an order."}])
    (request,) = tutor.add_request(asked, params)
    (text,) = run(tutor, request)
    jsonschema.validate(json.loads(text), record)
    spent = {name: value - before[name] for name, value in tutor.stats().items()}
    assert spent["accepted_draft_tokens"] == spent["draft_tokens"]  # certain is certain
    assert spent["steps"] + spent["draft_tokens"] == request.num_output_tokens
    assert spent["steps"] <= 0.7 * request.num_output_tokens


def test_an_automaton_that_has_grown_large_is_begun_anew(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_grammars, "MOST_STATES", 10)
    first = ask(engine, schema(ORDER), 1)
    run(engine, first)
    second, third = ask(engine, schema(ORDER), 2), ask(engine, schema(ORDER), 3)
    automata = [request.matcher._follower._matcher._automaton for request in (first, second, third)]
    assert automata[0] is not automata[1]
    assert automata[1] is automata[2]  # which has taken no step yet
    for text in run(engine, second, third):
        assert text.startswith("{")


def test_a_vocabulary_that_cannot_write_the_schema_is_left_to_the_library(
    engine: LLMEngine,
) -> None:
    facts = (engine.tokenizer, 3, frozenset({EOS}))
    compiled = own_grammars.OwnGrammars(PARTS, *facts).compiled(schema(ORDER))
    assert compiled is None
    no_end = own_grammars.OwnGrammars(PARTS, engine.tokenizer, VOCAB, ())
    assert no_end.compiled(schema(ORDER)) is None


# --- a learner's part ---


@pytest.mark.parametrize("where", ["ByteAutomaton.is_final", "TokenMasks.mask"])
def test_a_learners_part_that_fails_on_a_schema_refuses_it(labs: Path, where: str) -> None:
    mine = learners(labs, where)
    faults_of("structured_output").append(IndexError("boom"))
    blamed = r"your part structured_output failed: IndexError: boom \(labs/structured_output/"
    with pytest.raises(PartError, match=blamed):
        mine.add_request("An order.", SamplingParams(constraint=schema(ORDER)))
    (request,) = mine.add_request(
        "An order.", SamplingParams(max_tokens=9, constraint=schema(ORDER))
    )
    assert run(mine, request)[0].startswith("{")


def test_a_learners_part_that_fails_in_a_step_ends_its_request(labs: Path) -> None:
    mine = learners(labs, "Matcher.accept")
    params = SamplingParams(max_tokens=20, constraint=schema(ORDER))
    (request,) = mine.add_request("An order.", params)
    faults_of("structured_output").append(IndexError("boom"))
    run(mine, request)
    assert request.finish_reason is FinishReason.ERROR
    assert "your part structured_output failed: IndexError: boom" in (request.error or "")


def learners(labs: Path, faulty: str) -> LLMEngine:
    hand_in_faulty(labs, "structured_output", faulty)
    return LLMEngine(model="tutor", num_blocks=64, mine="structured_output")


@pytest.mark.parametrize("most", [VOCAB, VOCAB - 1])
def test_a_server_reads_the_vocabulary_before_a_request_needs_it(
    engine: LLMEngine, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the trie of a vocabulary that takes long."""
    monkeypatch.setattr(own_grammars, "MOST_PREPARED", most)
    grammars = Grammars(
        engine.tokenizer, engine.input._vocab_size, engine.model.eos_token_ids, PARTS
    )
    grammars.prepare()
    assert "_vocabulary" in vars(grammars)
    assert ("_trie" in vars(grammars._own)) == (engine.input._vocab_size <= most)
