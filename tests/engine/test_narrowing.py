"""`bad_words` and a limited thought: tokens that are left out of what may come next."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.constrained import run
from tests.engine.oracle import make_prompts, reference
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint, ThoughtLimit
from yaie.core.errors import InvalidRequestError
from yaie.core.request import FinishReason, Request
from yaie.engine.input.narrowing.bad_words import BadWords, spellings
from yaie.engine.input.narrowing.base import keep_only

EOS = 1
PROMPTS = make_prompts(4, VOCAB, seed=5)
MOST = 14
LOOPS: list[dict[str, Any]] = [{}, {"overlap": "on"}, {"speculate": "ngram"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module", params=LOOPS, ids=["plain", "overlapped", "drafts"])
def engine(folder: Path, request: pytest.FixtureRequest) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=200, **request.param)


def ask(engine: LLMEngine, prompt: Sequence[int], **params: Any) -> Request:
    (request,) = engine.add_request(list(prompt), SamplingParams(temperature=0, **params))
    return request


def naive(
    folder: Path, forbidden: Callable[[list[int]], set[int]], prompts: list[list[int]]
) -> list[list[int]]:
    """Greedy tokens from transformers' logits of the whole sequence, without those forbidden behind an
    output."""
    outputs: list[list[int]] = [[] for _ in prompts]
    model = reference(folder)
    with torch.inference_mode():
        for prompt, output in zip(prompts, outputs, strict=True):
            for _ in range(MOST):
                logits = model(torch.tensor([prompt + output])).logits[0, -1]
                logits[list(forbidden(output))] = float("-inf")
                output.append(int(logits.argmax()))
    return outputs


def words_of(engine: LLMEngine, outputs: list[list[int]]) -> list[str]:
    """Of what was generated freely, texts of one token and of several that would be tokenized so."""
    tokenizer = engine.tokenizer
    found = []
    for output in outputs:
        for size in (1, 2, 3):
            for at in range(2, len(output) - size):
                text = tokenizer.decode(output[at : at + size])
                spelled = tokenizer.encode(text, add_special_tokens=False)
                if text.strip() and "\ufffd" not in text and spelled == output[at : at + size]:
                    found.append(text)
                    break
    return found


def test_bad_words_are_left_out_as_in_a_naive_loop(engine: LLMEngine, folder: Path) -> None:
    common: dict[str, Any] = {"max_tokens": MOST, "ignore_eos": True}
    free = [ask(engine, prompt, **common) for prompt in PROMPTS]
    run(engine, *free)
    words = words_of(engine, [one.output_token_ids for one in free])
    sequences = [ids for word in words for ids in spellings(word, engine.tokenizer)]
    assert {1, 2} <= {len(ids) for ids in sequences}

    def forbidden(output: list[int]) -> set[int]:
        return {
            ids[-1]
            for ids in sequences
            if len(ids) == 1 or output[-(len(ids) - 1) :] == ids[:-1]
        }  # fmt: skip

    expected = naive(folder, forbidden, PROMPTS)
    narrowed = [ask(engine, prompt, bad_words=tuple(words), **common) for prompt in PROMPTS]
    run(engine, *narrowed)
    assert [one.output_token_ids for one in narrowed] == expected
    assert [one.output_token_ids for one in free] != expected


def test_it_goes_together_with_least_tokens_and_a_grammar(engine: LLMEngine) -> None:
    eager: dict[str, Any] = {"max_tokens": 30, "logit_bias": ((EOS, 100.0),)}
    late = ask(engine, [5, 6], bad_words=("zzz",), min_tokens=9, **eager)
    digits = Constraint("lark", "start: /[0-9]{8}/")
    wanted: dict[str, Any] = {"constraint": digits, "max_tokens": 30}
    free = ask(engine, [7, 8], **wanted)
    run(engine, free)
    (word, *_) = map(engine.tokenizer.decode, ([token] for token in free.output_token_ids))
    some = ask(engine, [7, 8], bad_words=(word,), **wanted)
    ones = ask(engine, [7, 8], bad_words=("1",), constraint=Constraint("lark", 'start: "1111"'))
    _, without, only = run(engine, late, some, ones)
    assert late.num_output_tokens == 10
    assert without.isdigit()
    assert free.output_token_ids[0] not in some.output_token_ids
    assert only == "1111", "where nothing else may come, it does"
    assert [one.error for one in (late, some, ones)] == [None] * 3


def test_after_an_end_that_ends_nothing_all_may_come(engine: LLMEngine) -> None:
    """A grammar allows nothing but the end then; there is none here."""
    request = ask(engine, [5], bad_words=("zzz",), ignore_eos=True, max_tokens=6,
                  logit_bias=((EOS, 100.0),))  # fmt: skip
    run(engine, request)
    assert request.output_token_ids == [EOS] * 6


@pytest.mark.parametrize("words", [("",), (" ",), (5,), "word"])
def test_a_word_must_be_one(words: Any) -> None:
    with pytest.raises(InvalidRequestError, match="bad_words must be a list of strings"):
        SamplingParams(bad_words=words)


def test_words_have_limits() -> None:
    with pytest.raises(InvalidRequestError, match="at most 128 strings"):
        SamplingParams(bad_words=("a",) * 129)
    with pytest.raises(InvalidRequestError, match="at most 256 characters, not 300"):
        SamplingParams(bad_words=("a" * 300,))


class Spelled:
    """A tokenizer of words, which knows "new" and "york" with and without a space in front."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        known = {"new york": [1, 2], " new york": [3, 2], "york": [4], " york": [5, 4], "": []}
        return known[text]


def test_a_word_is_looked_for_behind_a_space_too() -> None:
    tokenizer: Any = Spelled()
    assert spellings("new york", tokenizer) == [[1, 2], [3, 2]]
    assert spellings(" york", tokenizer) == [[5, 4]]
    assert spellings("york", tokenizer) == [[4]], "the other ends with it"


def test_the_last_token_of_a_word_is_forbidden_behind_the_others() -> None:
    tokenizer: Any = Spelled()
    words = BadWords(["new york"], tokenizer)
    bits = np.full((3, 1), 0xFF, np.uint8)
    words.follow([7, 1])
    for row, drafts in enumerate(([], [6], [6, 3])):
        words.narrow(bits[row], drafts)
    assert [bool(row[0] & 1 << 2) for row in bits] == [False, True, False]
    assert all(row[0] | 1 << 2 == 0xFF for row in bits)


def test_keeping_only_what_may_not_come_keeps_all() -> None:
    bits = np.array([0b101], np.uint8)
    keep_only(bits, 1)
    assert bits[0] == 0b101
    keep_only(bits, 200)
    assert bits[0] == 0b101
    keep_only(bits, 2)
    assert bits[0] == 0b100


# --- a limited thought ---

BEGIN, END = "<think>", "</think>"


@pytest.mark.parametrize("budget", [0, 1, 5, 9])
def test_a_thought_ends_when_it_is_full(engine: LLMEngine, folder: Path, budget: int) -> None:
    """Its end is written in several tokens here, and whatever the model would say in between."""
    end = engine.tokenizer.encode(END, add_special_tokens=False)
    limit = ThoughtLimit(budget, BEGIN, END, is_open=True)

    def forbidden(output: list[int]) -> set[int]:
        beyond = len(output) - budget
        forced = beyond in range(len(end))
        return set(range(VOCAB)) - {end[beyond]} if forced else set()

    requests = [
        ask(engine, prompt, thought=limit, max_tokens=MOST, ignore_eos=True) for prompt in PROMPTS
    ]
    run(engine, *requests)
    expected = naive(folder, forbidden, PROMPTS)
    assert [one.output_token_ids for one in requests] == expected
    for request in requests:
        assert request.output_token_ids[budget : budget + len(end)] == end[: MOST - budget]


def test_a_thought_that_ends_in_time_or_never_began_is_let_be(engine: LLMEngine) -> None:
    encode = engine.tokenizer.encode
    ended = encode(f"ab{END}cdefgh", add_special_tokens=False)
    said = encode("abcdefgh", add_special_tokens=False)
    for tokens, is_open in ((ended, True), (said, False)):
        grammar = Constraint("lark", f'start: "{engine.tokenizer.decode(tokens)}"')
        limit = ThoughtLimit(6 if is_open else 0, BEGIN, END, is_open=is_open)
        request = ask(engine, [5, 6, 7], constraint=grammar, thought=limit, max_tokens=90)
        (text,) = run(engine, request)
        assert text == engine.tokenizer.decode(tokens)
        assert request.finish_reason is FinishReason.STOP


def test_a_thought_that_the_model_begins_is_limited(engine: LLMEngine) -> None:
    grammar = Constraint("lark", f'start: "\\n{BEGIN}" /a*/ "{END}b"')
    (a,) = engine.tokenizer.encode("a", add_special_tokens=False)
    bias = ((a, 50.0),)
    for budget in (0, 3, 7):
        limit = ThoughtLimit(budget, BEGIN, END)
        request = ask(engine, [5, 6], constraint=grammar, thought=limit, max_tokens=90,
                      logit_bias=bias)  # fmt: skip
        (text,) = run(engine, request)
        assert text.startswith(f"\n{BEGIN}")
        assert text.endswith(f"{END}b")
        thought = text[len(BEGIN) + 1 : -len(END) - 1]
        assert len(engine.tokenizer.encode(thought, add_special_tokens=False)) <= budget
        assert bool(thought) == bool(budget)
