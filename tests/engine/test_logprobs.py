"""Log-probabilities are the model's own, whatever is drawn from them and however they were computed."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.oracle import make_prompts
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.logprobs import TokenLogprob
from yaie.core.request import FinishReason, Request

CLOSE = 1e-4
TOP = 5
ASKS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=TOP)
PROMPTS = make_prompts(8, VOCAB)
LONG = list(range(20, 120))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def engine(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=128)


@cache
def _model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def expected(folder: Path, token_ids: list[int]) -> torch.Tensor:
    """transformers' log-probabilities [len, vocab]: row i of the token after the first i + 1."""
    logits: torch.Tensor = _model(folder)(torch.tensor([token_ids])).logits[0]
    return logits.float().log_softmax(dim=1)


def run(engine: LLMEngine, *requests: Request) -> None:
    while engine.has_work:
        engine.step()
        engine.check()
    assert all(request.finish_reason is not FinishReason.ERROR for request in requests)


def assert_agree(
    got: list[TokenLogprob | None], wanted: torch.Tensor, token_ids: list[int], num_top: int
) -> None:
    """`got` tells of `token_ids`, and row i of `wanted` is the oracle's for the i-th."""
    assert [entry.token_id for entry in got if entry is not None] == token_ids
    for entry, row in zip(got, wanted, strict=True):
        assert entry is not None
        assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=CLOSE)
        best = row.topk(num_top) if num_top else None
        assert [token for token, _ in entry.top] == (best.indices.tolist() if best else [])
        values = best.values.tolist() if best else []
        assert [value for _, value in entry.top] == pytest.approx(values, abs=CLOSE)


def assert_output_agrees(folder: Path, request: Request, num_top: int = TOP) -> None:
    rows = expected(folder, request.token_ids)[request.num_prompt_tokens - 1 : -1]
    assert_agree(list(request.logprobs), rows, request.output_token_ids, num_top)


def assert_prompt_agrees(folder: Path, request: Request, num_top: int) -> None:
    first, *rest = request.prompt_logprobs
    assert first is None
    prompt = request.token_ids[: request.num_prompt_tokens]
    assert_agree(rest, expected(folder, prompt)[:-1], prompt[1:], num_top)


def test_logprobs_are_those_of_transformers(folder: Path, engine: LLMEngine) -> None:
    requests = [engine.add_request(prompt, ASKS)[0] for prompt in PROMPTS]
    run(engine, *requests)
    for request in requests:
        assert_output_agrees(folder, request)


def test_logprobs_know_nothing_of_what_changes_the_draw(folder: Path, engine: LLMEngine) -> None:
    sampled = replace(
        ASKS,
        temperature=1.7,
        top_k=50,
        seed=4,
        frequency_penalty=1.0,
        repetition_penalty=1.3,
        logit_bias=((7, 100.0), (9, -100.0)),
    )
    requests = [engine.add_request(prompt, sampled)[0] for prompt in PROMPTS]
    run(engine, *requests)
    for request in requests:
        assert_output_agrees(folder, request)


def test_rows_that_ask_for_more_and_for_less_share_a_batch(folder: Path, engine: LLMEngine) -> None:
    wanted = [0, 20, None, 1, 3]
    requests = [
        engine.add_request(prompt, replace(ASKS, logprobs=count))[0]
        for prompt, count in zip(PROMPTS, wanted, strict=False)
    ]
    run(engine, *requests)
    for request, count in zip(requests, wanted, strict=True):
        if count is None:
            assert request.logprobs == []
        else:
            assert_output_agrees(folder, request, count)


def test_asking_changes_no_token(engine: LLMEngine) -> None:
    sampled = replace(ASKS, temperature=1.0, seed=3, prompt_logprobs=2)
    (asked,) = engine.add_request(LONG, sampled)
    (silent,) = engine.add_request(LONG, replace(sampled, logprobs=None, prompt_logprobs=None))
    run(engine, asked, silent)
    assert asked.output_token_ids == silent.output_token_ids
    assert (silent.logprobs, silent.prompt_logprobs) == ([], [])


def test_a_step_has_noted_its_logprobs_before_it_tells_of_its_tokens(engine: LLMEngine) -> None:
    (request,) = engine.add_request(LONG, replace(ASKS, prompt_logprobs=0))
    while engine.has_work:
        for output in engine.step():
            assert output.request_id == request.request_id
            assert [entry.token_id for entry in output.logprobs or ()] == output.token_ids
            told = output.prompt_logprobs
            assert (told is None) == (output.num_output_tokens > 1)
            assert told is None or len(told) == len(LONG)


@pytest.mark.parametrize("settings", [{}, {"preemption": "swap", "swap_space": 0.1}])
def test_preempted_request_notes_each_token_once(folder: Path, settings: dict[str, Any]) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=9, watermark=0.0, **settings)
    params = replace(ASKS, max_tokens=40, prompt_logprobs=1)
    requests = [engine.add_request(LONG[i : i + 30], params)[0] for i in range(4)]
    run(engine, *requests)
    assert sum(request.num_preemptions for request in requests) > 0
    for request in requests:
        assert_output_agrees(folder, request)
        assert_prompt_agrees(folder, request, 1)


def test_static_batch_notes_nothing_for_rows_that_have_ended(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=64, batching="static")
    lengths = (3, 12)
    requests = [engine.add_request(LONG, replace(ASKS, max_tokens=n))[0] for n in lengths]
    run(engine, *requests)
    assert [len(request.logprobs) for request in requests] == list(lengths)


@pytest.mark.parametrize("budget", [7, 16, 33, 2048])
def test_prompt_logprobs_are_those_of_transformers_however_it_is_cut(
    folder: Path, budget: int
) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=128, token_budget=budget)
    params = replace(ASKS, prompt_logprobs=3)
    requests = [engine.add_request(prompt, params)[0] for prompt in PROMPTS]
    run(engine, *requests)
    for request in requests:
        assert_prompt_agrees(folder, request, 3)
        assert_output_agrees(folder, request)


def test_prompt_of_many_slices_is_told_whole(folder: Path, engine: LLMEngine) -> None:
    prompt = make_prompts(1, VOCAB, seed=1)[0] + [(7 * i) % 370 + 5 for i in range(500)]
    (request,) = engine.add_request(prompt, replace(ASKS, prompt_logprobs=0))
    run(engine, request)
    assert_prompt_agrees(folder, request, 0)


def test_prompt_logprobs_take_nothing_from_a_warm_cache(folder: Path, engine: LLMEngine) -> None:
    (first,) = engine.add_request(LONG, ASKS)
    run(engine, first)
    (asked,) = engine.add_request(LONG, replace(ASKS, prompt_logprobs=2))
    run(engine, asked)
    assert asked.num_cached_tokens == 0
    assert_prompt_agrees(folder, asked, 2)
    (after,) = engine.add_request(LONG, ASKS)
    run(engine, after)
    assert after.num_cached_tokens == 96
    assert after.output_token_ids == asked.output_token_ids == first.output_token_ids


def test_prompt_that_is_being_computed_by_another_is_told_whole(
    folder: Path, engine: LLMEngine
) -> None:
    params = replace(ASKS, prompt_logprobs=1)
    requests = [engine.add_request(LONG, params)[0] for _ in range(3)]
    run(engine, *requests)
    for request in requests:
        assert_prompt_agrees(folder, request, 1)


def test_first_of_siblings_has_the_prompt_and_each_its_own_output(
    folder: Path, engine: LLMEngine
) -> None:
    params = replace(ASKS, n=3, temperature=1.0, seed=6, prompt_logprobs=2)
    requests = engine.add_request(LONG, params)
    run(engine, *requests)
    assert_prompt_agrees(folder, requests[0], 2)
    assert [request.prompt_logprobs for request in requests[1:]] == [[], []]
    assert [request.num_cached_tokens for request in requests] == [0, 99, 99]
    for request in requests:
        assert_output_agrees(folder, request)


@pytest.mark.parametrize("length", [1, 2])
def test_shortest_prompts_are_told(folder: Path, engine: LLMEngine, length: int) -> None:
    (request,) = engine.add_request(LONG[:length], replace(ASKS, prompt_logprobs=1))
    run(engine, request)
    assert_prompt_agrees(folder, request, 1)


def test_failed_row_notes_nothing(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=64)
    engine.model.adapter.embedding[300] = float("nan")
    (failed,) = engine.add_request([300, 5, 6], ASKS)
    (other,) = engine.add_request([5, 6, 7], ASKS)
    while engine.has_work:
        engine.step()
    assert (failed.finish_reason, failed.logprobs) == (FinishReason.ERROR, [])
    assert_output_agrees(folder, other)


def test_token_that_the_model_rules_out_has_a_number_that_json_can_say(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = engine.model.adapter.logits

    def ruled_out(hidden: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = logits(hidden)
        rows[:, 5:] = float("-inf")
        return rows

    monkeypatch.setattr(engine.model.adapter, "logits", ruled_out)
    (request,) = engine.add_request(LONG, replace(ASKS, logprobs=20, prompt_logprobs=20))
    run(engine, request)
    told = [*request.logprobs, *request.prompt_logprobs[1:]]
    numbers = [n for entry in told if entry for n in (entry.logprob, *(v for _, v in entry.top))]
    assert torch.tensor(numbers).isfinite().all()


def test_bias_makes_a_token_certain_or_impossible(engine: LLMEngine) -> None:
    params = replace(ASKS, logit_bias=((11, 100.0),))
    (certain,) = engine.add_request(LONG, params)
    (plain,) = engine.add_request(LONG, ASKS)
    run(engine, certain, plain)
    assert set(certain.output_token_ids) == {11}
    banned = plain.output_token_ids[0]
    (without,) = engine.add_request(LONG, replace(ASKS, logit_bias=((banned, -100.0),)))
    run(engine, without)
    assert banned not in without.output_token_ids


def test_bias_leaves_its_neighbours_alone(engine: LLMEngine) -> None:
    alone = [engine.add_request(prompt, ASKS)[0] for prompt in PROMPTS[:3]]
    run(engine, *alone)
    engine.reset_prefix_cache()
    beside = [engine.add_request(prompt, ASKS)[0] for prompt in PROMPTS[:3]]
    biased = engine.add_request(PROMPTS[4], replace(ASKS, logit_bias=((11, 100.0),)))
    run(engine, *beside, *biased)
    assert [r.output_token_ids for r in beside] == [r.output_token_ids for r in alone]
