"""An output that was to belong to a language does, and nobody else notices."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from tests.engine.constrained import EOS, PERSON, SAMPLED, ask, run, schema
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.request import FinishReason, Request
from yaie.engine.input.grammars.compiler import Grammars
from yaie.engine.input.grammars.matchers import leave_out

SCHEMAS: list[dict[str, Any]] = [
    PERSON,
    {"type": "boolean"},
    {"enum": ["red", "gr\u00fcn", 3.5, None, {"a": [1]}]},
    {"type": "number", "minimum": -2, "maximum": 2, "multipleOf": 0.5},
    {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-c]{2,4}$"}]},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2,
     "maxItems": 4},
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "boolean"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    {"type": "string", "format": "date"},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def engine(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=400)


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_every_finished_output_fits_its_schema(engine: LLMEngine, index: int) -> None:
    requests = [ask(engine, schema(SCHEMAS[index]), seed) for seed in range(8)]
    texts = run(engine, *requests)
    finished = [t for r, t in zip(requests, texts, strict=True) if r.finish_reason == "stop"]
    assert all(request.finish_reason in ("stop", "length") for request in requests)
    assert len(finished) >= 5
    for text in finished:
        jsonschema.validate(json.loads(text), SCHEMAS[index])


def test_json_object_is_an_object(engine: LLMEngine) -> None:
    # Of a random model most objects never end; a bias towards the brace makes them.
    brace = engine.tokenizer.encode("}")[0]
    object_ = Constraint("json_object")
    requests = [ask(engine, object_, seed, logit_bias=((brace, 12.0),)) for seed in range(8)]
    texts = run(engine, *requests)
    finished = [t for r, t in zip(requests, texts, strict=True) if r.finish_reason == "stop"]
    assert len(finished) >= 4
    assert all(isinstance(json.loads(text), dict) for text in finished)


def test_tutor_keeps_to_a_schema() -> None:
    tutor = LLMEngine(model="tutor", num_blocks=64)
    params = SamplingParams(seed=1, max_tokens=200, constraint=schema(PERSON))
    for text in tutor.generate("Tell me about a person.", params, n=3):
        jsonschema.validate(json.loads(text), PERSON)


def test_grammar_in_lark_is_followed(engine: LLMEngine) -> None:
    grammar = Constraint("lark", 'start: ("yes" | "no") " " /[0-9]{2}/')
    for text in run(engine, *(ask(engine, grammar, seed) for seed in range(4))):
        assert text.split(" ")[0] in ("yes", "no")
        assert len(text.split(" ")[1]) == 2


def test_siblings_follow_a_copy_each(engine: LLMEngine) -> None:
    params = replace(SAMPLED, n=4, seed=2, constraint=schema(PERSON))
    requests = engine.add_request([5, 6, 7], params)
    texts = run(engine, *requests)
    assert len(set(texts)) > 1
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


def test_neighbours_draw_what_they_draw_alone(engine: LLMEngine) -> None:
    plain = [SamplingParams(seed=i, max_tokens=12, ignore_eos=True, logprobs=2) for i in range(3)]
    alone = [engine.add_request([9, 8, i], plain[i])[0] for i in range(3)]
    ask(engine, schema(True), 77)  # the same shapes, so that the same bits may be expected
    run(engine)
    engine.reset_prefix_cache()
    beside = [engine.add_request([9, 8, i], plain[i])[0] for i in range(3)]
    ask(engine, schema(PERSON), 77)
    run(engine)
    for one, other in zip(alone, beside, strict=True):
        assert one.output_token_ids == other.output_token_ids


def test_rows_without_a_constraint_keep_their_bits(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = engine._machine.worker.sampler  # type: ignore[attr-defined]
    seen: list[torch.Tensor] = []
    sample, logits_of = sampler.sample, engine.model.adapter.logits

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = logits_of(hidden)
        seen.append(logits.clone())
        return logits

    def watched(logits: torch.Tensor, batch: Any) -> torch.Tensor:
        seen.append(logits.clone())
        return sample(logits, batch)  # type: ignore[no-any-return]

    monkeypatch.setattr(engine.model.adapter, "logits", head)
    monkeypatch.setattr(sampler, "sample", watched)
    engine.add_request([5, 6], SAMPLED)
    ask(engine, schema({"type": "boolean"}))
    engine.step()
    (free, bound), (masked_free, masked) = seen
    assert torch.equal(free, masked_free)
    kept = masked.isfinite()
    assert torch.equal(masked[kept], bound[kept])
    assert 0 < kept.sum() < VOCAB // 4
    monkeypatch.undo()
    run(engine)


def test_end_of_sequence_waits_until_the_grammar_accepts(engine: LLMEngine) -> None:
    request = ask(engine, schema(PERSON), 3, logit_bias=((EOS, 100.0),))
    (text,) = run(engine, request)
    assert request.finish_reason == "stop"
    jsonschema.validate(json.loads(text), PERSON)


def test_ignored_end_of_sequence_leaves_the_text_as_it_was(engine: LLMEngine) -> None:
    request = ask(engine, schema({"type": "boolean"}), ignore_eos=True, max_tokens=30)
    (text,) = run(engine, request)
    assert (request.finish_reason, request.num_output_tokens) == ("length", 30)
    assert json.loads(text) in (True, False)
    assert request.output_token_ids[-1] == EOS


def test_nothing_but_the_end_follows_the_end(engine: LLMEngine) -> None:
    """Of a grammar that could go on: more digits would fit, and come no more."""
    digits = Constraint("lark", "start: /[0-9]+/")
    one = engine.tokenizer.encode("1", add_special_tokens=False)[0]
    request = Request("r", [5], SamplingParams(constraint=digits, ignore_eos=True), max_tokens=9)
    parts = engine.backend.parts
    matcher = Grammars(engine.tokenizer, VOCAB, frozenset({EOS, 3}), parts).matcher(request)

    def allowed() -> set[int]:
        bits = np.zeros(VOCAB // 8, np.uint8)
        matcher.fill(bits)
        return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())

    assert one in allowed()
    assert EOS not in allowed()
    request.token_ids.append(one)
    assert {one, EOS, 3} <= allowed()
    for token in (EOS, 3, EOS):
        request.token_ids.append(token)
        assert allowed() == {EOS, 3}
    letter = engine.tokenizer.encode("x", add_special_tokens=False)[0]
    request.token_ids.append(letter)  # what comes behind the end is not looked at
    assert allowed() == {EOS, 3}
    assert matcher.error is None


def test_max_tokens_and_stop_strings_cut_it_as_any_output(engine: LLMEngine) -> None:
    short, stopped = (
        ask(engine, schema(PERSON), max_tokens=3),
        ask(engine, schema(PERSON), stop=":"),
    )
    run(engine, short, stopped)
    assert (short.finish_reason, short.num_output_tokens) == ("length", 3)
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", ":")


def test_preempted_request_goes_on_in_its_grammar(folder: Path) -> None:
    small = LLMEngine(model=str(folder), num_blocks=8, watermark=0.0)
    longer = schema({"type": "string", "minLength": 40, "maxLength": 44})
    params = replace(SAMPLED, max_tokens=80, constraint=longer)
    requests = [small.add_request([5 + i] * 20, replace(params, seed=i))[0] for i in range(3)]
    texts = run(small, *requests)
    assert sum(request.num_preemptions for request in requests) > 0
    for text in texts:
        assert 40 <= len(json.loads(text)) <= 44


def test_tokens_beyond_the_tokenizer_are_never_drawn(tmp_path: Path) -> None:
    """Models pad their vocabulary; a padded row has a logit, and no text."""
    from tokenizers import Tokenizer, models

    folder = tiny_model("llama", tmp_path / "llama")
    whole = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    kept = {token: i for token, i in whole["model"]["vocab"].items() if i < 300}
    whole["model"]["vocab"] = kept
    whole["model"]["merges"] = [pair for pair in whole["model"]["merges"] if "".join(pair) in kept]
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    assert isinstance(Tokenizer.from_file(str(folder / "tokenizer.json")).model, models.BPE)
    padded = LLMEngine(model=str(folder), num_blocks=64)
    assert padded.tokenizer.vocab_size < padded.model.adapter.vocab_size
    bias = tuple((token, 50.0) for token in range(300, VOCAB))
    texts = run(padded, *(ask(padded, schema(PERSON), seed, logit_bias=bias) for seed in range(3)))
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


def test_grammar_that_leads_nowhere_ends_its_request_and_no_other(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = ask(engine, schema(PERSON), 1), ask(engine, schema({"type": "boolean"}), 2)
    engine.step()
    monkeypatch.setattr(lost.matcher, "_mask", lambda: lost.matcher._fail("too complex") or b"")
    (_, text) = run(engine, lost, other)
    assert lost.finish_reason is FinishReason.ERROR
    assert "too complex" in (lost.error or "")
    assert other.finish_reason == "stop"
    assert json.loads(text) in (True, False)


def test_nan_under_a_constraint_is_still_an_error(folder: Path) -> None:
    poisoned = LLMEngine(model=str(folder), num_blocks=32)
    poisoned.model.adapter.embedding[300] = float("nan")
    params = replace(SAMPLED, constraint=schema(PERSON))
    (request,) = poisoned.add_request([300, 5], params)
    run(poisoned, request)
    assert request.finish_reason is FinishReason.ERROR
    assert "not finite" in (request.error or "")


def test_tokens_are_left_out_of_a_mask_unless_nothing_else_is_allowed() -> None:
    bits = np.array([0b1111, 0b1], dtype=np.uint8)
    leave_out(bits, [1, 8, 16, 100, -1])  # the last three are no tokens of this mask
    assert bits.tolist() == [0b1101, 0]
    leave_out(bits, [0, 2, 3])
    assert bits.tolist() == [0b1101, 0]
