"""What ended an output, and special tokens: part of its text where a request wants it so."""

from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.request import FinishReason, Request
from yaie.engine.step.request_texts import Detokenizers

EOS = 1


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LLMEngine:
    torch.set_num_threads(1)
    return LLMEngine(model=str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")))


def answer(engine: LLMEngine, said: str = "", **params: Any) -> tuple[str, Request]:
    """The text of an output that says this, if anything is said, and its request."""
    grammar = Constraint("lark", f'start: "{said}"') if said else None
    wanted = {"temperature": 0, "max_tokens": 40, "constraint": grammar, **params}
    (request,) = engine.add_request([5, 6, 7], SamplingParams(**wanted))
    text = ""
    while engine.has_work:
        text += "".join(output.text for output in engine.step())
    assert request.error is None
    return text, request


INCLUDED: dict[str, Any] = {"include_stop_str_in_output": True}


@pytest.mark.parametrize("min_tokens", [0, 2])
def test_a_stop_string_is_part_of_the_text(engine: LLMEngine, min_tokens: int) -> None:
    params: dict[str, Any] = {"stop": ["lo w", "orl"], "min_tokens": min_tokens}
    without, request = answer(engine, "hello world", **params)
    assert (without, request.stop_reason) == ("hel", "lo w")
    text, request = answer(engine, "hello world", **params, **INCLUDED)
    assert (text, request.stop_reason) == ("hello w", "lo w")
    assert request.finish_reason is FinishReason.STOP


def test_a_stop_token_is_part_of_the_text(engine: LLMEngine) -> None:
    ids = engine.tokenizer.encode("hello world", add_special_tokens=False)
    _, request = answer(engine, "hello world", ignore_eos=True, max_tokens=len(ids))
    said = request.output_token_ids
    for place, token in enumerate(said):
        if token in said[:place]:
            continue
        params: dict[str, Any] = {"stop_token_ids": [token]}
        assert answer(engine, "hello world", **params)[0] == engine.tokenizer.decode(said[:place])
        text, request = answer(engine, "hello world", **params, **INCLUDED)
        assert text == engine.tokenizer.decode(said[: place + 1])
        assert (request.stop_reason, request.output_token_ids) == (token, said[: place + 1])


def test_what_came_to_its_most_tokens_has_no_more(engine: LLMEngine) -> None:
    for most in (1, 2, 3):
        plain = answer(engine, "hello world", max_tokens=most)
        shown = answer(engine, "hello world", max_tokens=most, **INCLUDED)
        assert shown[0] == plain[0]
        assert shown[1].finish_reason is FinishReason.LENGTH


def test_the_end_of_sequence_is_shown_where_special_tokens_are(engine: LLMEngine) -> None:
    name = engine.tokenizer.token_name(EOS)
    shown: dict[str, Any] = {"skip_special_tokens": False}
    for params, text in (
        ({}, "hi"),
        (INCLUDED, "hi"),
        (shown, "hi"),
        (shown | INCLUDED, "hi" + name),
    ):
        assert answer(engine, "hi", **params)[0] == text


def test_special_tokens_are_part_of_the_text(engine: LLMEngine) -> None:
    bias: dict[str, Any] = {"logit_bias": ((EOS, 100.0),), "ignore_eos": True, "max_tokens": 3}
    assert answer(engine, **bias)[0] == ""
    name = engine.tokenizer.token_name(EOS)
    assert answer(engine, **bias, skip_special_tokens=False)[0] == 3 * name
    stopped, request = answer(engine, **bias, skip_special_tokens=False, stop=[name])
    assert (stopped, request.stop_reason) == ("", name)


class Learners:
    """Parts of which lab 7 is a learner's: its detokenizer is used, whatever the tokenizer."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def __getitem__(self, lab: str) -> Any:
        return self._parts[lab]

    def table(self) -> list[Any]:
        class Row:
            lab, is_yours = "engine", True

        return [Row()]


def test_lab_7s_detokenizer_shows_them_too(engine: LLMEngine) -> None:
    parts: Any = Learners(engine.backend.parts)
    ids = [*engine.tokenizer.encode("h\u00e9 \u4e2d", add_special_tokens=False), EOS, 9]
    for made in (Detokenizers(parts, engine.tokenizer),
                 Detokenizers(engine.backend.parts, engine.tokenizer)):  # fmt: skip
        for skips in (True, False):
            params = SamplingParams(skip_special_tokens=skips)
            detokenizer = made.special(Request("a", [5], params))
            text = "".join(map(detokenizer.push, ids)) + detokenizer.flush()
            decode = engine.tokenizer.decode if skips else engine.tokenizer.decode_all
            assert text == decode(ids)
