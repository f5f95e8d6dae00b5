"""`min_tokens`: nothing ends an output before, in either loop; behind it everything does as ever."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.constrained import schema
from tests.engine.oracle import last_logits, make_prompts
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.request import FinishReason, Request
from yaie.engine.step.late_stops import LateStopChecker

EOS = 1
STOPS = tuple(range(2, VOCAB, 3))
"""A third of all tokens: without `min_tokens` an output ends soon."""
PROMPTS = make_prompts(6, VOCAB, seed=3)
MIN_TOKENS = (0, 1, 4, 7, 12, 3)
MOST = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module", params=["off", "on"])
def engine(folder: Path, request: pytest.FixtureRequest) -> LLMEngine:
    """In both loops."""
    return LLMEngine(model=str(folder), num_blocks=200, overlap=request.param)


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    """Each token from transformers' logits of the whole sequence; what ends an output comes late."""
    enders = {EOS, *STOPS}
    outputs: list[list[int]] = [[] for _ in PROMPTS]
    while alive := [i for i, own in enumerate(outputs) if not ended(own, MIN_TOKENS[i], enders)]:
        sequences = [PROMPTS[i] + outputs[i] for i in alive]
        for i, raw in zip(alive, last_logits(folder, sequences), strict=True):
            logits = raw.clone()
            if len(outputs[i]) < MIN_TOKENS[i]:
                logits[list(enders)] = float("-inf")
            outputs[i].append(int(logits.argmax()))
    return outputs


def ended(output: list[int], least: int, enders: set[int]) -> bool:
    return len(output) == MOST or (len(output) > least and output[-1] in enders)


def finish(engine: LLMEngine, requests: Sequence[Request]) -> None:
    while engine.has_work:
        engine.step()
        engine.check()
    assert [request.error for request in requests] == [None] * len(requests)


def ask(engine: LLMEngine, prompt: list[int], **params: Any) -> Request:
    (request,) = engine.add_request(prompt, SamplingParams(**params))
    return request


def test_outputs_are_those_of_a_naive_loop(engine: LLMEngine, expected: list[list[int]]) -> None:
    common: dict[str, Any] = {"temperature": 0, "max_tokens": MOST, "stop_token_ids": STOPS}
    requests = [
        ask(engine, prompt, min_tokens=least, **common)
        for prompt, least in zip(PROMPTS, MIN_TOKENS, strict=True)
    ]
    finish(engine, requests)
    for request, own, least in zip(requests, expected, MIN_TOKENS, strict=True):
        assert request.output_token_ids == own
        assert len(own) > least
        if own[-1] in STOPS:
            assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, own[-1])
    assert any(len(own) < MOST for own in expected)


def test_the_output_ends_as_soon_as_it_may(engine: LLMEngine) -> None:
    wanted = {"temperature": 0, "max_tokens": 30, "logit_bias": ((EOS, 100.0),)}
    requests = [ask(engine, [5, 6, 7], min_tokens=least, **wanted) for least in (0, 1, 9, 30)]
    finish(engine, requests)
    assert [request.num_output_tokens for request in requests] == [1, 2, 10, 30]
    assert [request.output_token_ids.count(EOS) for request in requests] == [1, 1, 1, 0]
    assert requests[3].finish_reason is FinishReason.LENGTH


def test_siblings_preemptions_and_seeds_keep_to_it(folder: Path) -> None:
    """A pool too small for all of them: they lose their seats and begin anew."""
    common: dict[str, Any] = {"max_tokens": 40, "logit_bias": ((EOS, 100.0),), "min_tokens": 25}
    outputs = []
    for overlap in ("off", "on"):
        tight: dict[str, Any] = {"num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12}
        engine = LLMEngine(model=str(folder), overlap=overlap, **tight)
        requests = [
            one
            for seed in range(3)
            for one in engine.add_request([3 + seed] * 20, SamplingParams(seed=seed, n=2, **common))
        ]
        finish(engine, requests)
        assert engine.stats()["preemptions"] > 0
        assert [request.num_output_tokens for request in requests] == [26] * 6
        outputs.append([request.output_token_ids for request in requests])
    assert outputs[0] == outputs[1]


def test_a_request_without_it_is_as_it_was_beside_one_with_it(engine: LLMEngine) -> None:
    plain: dict[str, Any] = {"temperature": 0, "max_tokens": MOST, "ignore_eos": True}
    alone = ask(engine, PROMPTS[2], **plain)
    finish(engine, [alone])
    beside = ask(engine, PROMPTS[2], **plain)
    finish(engine, [beside, ask(engine, PROMPTS[1], min_tokens=9, stop_token_ids=STOPS)])
    assert beside.output_token_ids == alone.output_token_ids


def test_end_of_sequence_is_held_back_though_it_ends_nothing(engine: LLMEngine) -> None:
    """As in vLLM: `ignore_eos` says what the token does, not whether it is drawn."""
    wanted = {"temperature": 0, "max_tokens": 8, "logit_bias": ((EOS, 100.0),), "ignore_eos": True}
    request = ask(engine, [5, 6], min_tokens=5, **wanted)
    finish(engine, [request])
    assert [token == EOS for token in request.output_token_ids] == [False] * 5 + [True] * 3


# --- a grammar has the last word ---


def test_a_grammar_goes_on_while_it_can(engine: LLMEngine) -> None:
    digits = Constraint("lark", "start: /[0-9]+/")
    wanted = {"temperature": 0, "max_tokens": 40, "logit_bias": ((EOS, 100.0),)}
    request = ask(engine, [5, 6], min_tokens=12, constraint=digits, **wanted)
    finish(engine, [request])
    assert request.num_output_tokens == 13
    assert engine.tokenizer.decode(request.output_token_ids).isdigit()


def test_a_grammar_that_is_complete_ends_the_output_before(engine: LLMEngine) -> None:
    request = ask(engine, [5, 6], min_tokens=60, max_tokens=80, constraint=schema({"enum": [True]}))
    finish(engine, [request])
    assert engine.tokenizer.decode(request.output_token_ids) == "true"
    assert request.finish_reason is FinishReason.STOP


# --- stop strings ---


def naive_stop(pieces: list[str], stops: list[str], least: int) -> tuple[str, str | None]:
    """The text in front of the stop string that ends first behind `least` pieces."""
    text = ""
    for number, piece in enumerate(pieces):
        for end in range(len(text) + 1, len(text) + len(piece) + 1) if number >= least else ():
            found = [s for s in stops if (text + piece)[:end].endswith(s)]
            if found:
                stop = max(found, key=len)
                return (text + piece)[: end - len(stop)], stop
        text += piece
    return text, None


@pytest.mark.parametrize("seed", range(200))
def test_stop_strings_are_looked_for_behind_the_first_tokens(seed: int) -> None:
    rng = random.Random(seed)
    pieces = ["".join(rng.choices("ab", k=rng.randrange(4))) for _ in range(12)]
    stops = ["".join(rng.choices("ab", k=rng.randint(1, 5))) for _ in range(3)]
    least = rng.randint(1, 8)
    checker, shown, found = LateStopChecker(stops, least), "", None
    for piece in pieces:
        text, found = checker.push(piece)
        shown += text
        if found is not None:
            break
        whole = "".join(pieces)
        assert whole.startswith(shown)
    shown += "" if found is not None else checker.flush()
    assert (shown, found) == naive_stop(pieces, stops, least)


def test_what_cannot_become_a_stop_string_is_shown_at_once() -> None:
    checker = LateStopChecker(["END"], 5)
    assert [checker.push(piece)[0] for piece in ("some", " text E", "N", "D", "!")] == [
        "some", " text ", "", "END", "!",
    ]  # fmt: skip


def test_a_stop_string_does_not_end_the_output_before(engine: LLMEngine) -> None:
    letter = engine.tokenizer.encode("a", add_special_tokens=False)[0]
    wanted = {"temperature": 0, "max_tokens": 20, "logit_bias": ((letter, 100.0),), "stop": "aa"}
    lengths = []
    for least in (0, 1, 6):
        request = ask(engine, [5, 6], min_tokens=least, **wanted)
        finish(engine, [request])
        assert request.stop_reason == "aa"
        lengths.append(request.num_output_tokens)
    assert lengths == [2, 2, 7]


# --- what is refused ---


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"min_tokens": True}, "min_tokens"),
        ({"min_tokens": None}, "min_tokens"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"logprobs": 0, "logprob_token_ids": list(range(129))}, "logprob_token_ids"),
        ({"logprobs": 0, "logprob_token_ids": ["1"]}, "logprob_token_ids"),
        ({"add_special_tokens": 1}, "add_special_tokens"),
    ],
)
def test_wrong_values_are_refused_by_name(params: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        SamplingParams(**params)
    assert error.value.param == param


def test_what_the_model_cannot_do_is_refused(engine: LLMEngine) -> None:
    for params, param in (
        ({"logprobs": 0, "logprob_token_ids": [VOCAB]}, "logprob_token_ids"),
        ({"stop_token_ids": list(range(VOCAB)), "min_tokens": 1}, "stop_token_ids"),
    ):
        with pytest.raises(InvalidRequestError) as error:
            ask(engine, [5], **params)
        assert error.value.param == param
    assert not engine.has_work
