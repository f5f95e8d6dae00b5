"""What must not get into the engine, and what must get out of it again."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import (
    ContextLengthError,
    EngineOverloadedError,
    InvalidRequestError,
    KVPoolTooSmallError,
)
from yaie.core.request import FinishReason
from yaie.engine.input.limits import resolve_max_tokens, truncated
from yaie.engine.step.explaining import StepFaultError

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def engine(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=64, max_waiting=6)


@pytest.mark.parametrize(
    ("num_prompt", "wanted", "granted"),
    [(10, 5, 5), (10, None, 90), (99, None, 1), (10, 90, 90), (99, 1, 1)],
)
def test_output_may_fill_the_context_to_its_last_token(
    num_prompt: int, wanted: int | None, granted: int
) -> None:
    params = SamplingParams(max_tokens=wanted)
    assert resolve_max_tokens(num_prompt, params, max_model_len=100, text_tokens=999) == granted


@pytest.mark.parametrize(("num_prompt", "wanted"), [(100, None), (100, 1), (10, 91), (101, None)])
def test_one_token_beyond_the_context_is_refused(num_prompt: int, wanted: int | None) -> None:
    with pytest.raises(ContextLengthError, match=rf"100 tokens.*{num_prompt}"):
        resolve_max_tokens(num_prompt, SamplingParams(max_tokens=wanted), 100, text_tokens=999)


@pytest.mark.parametrize(("wanted", "granted"), [(23, 23), (None, 23)])
def test_last_token_needs_no_slot_in_the_pool(wanted: int | None, granted: int) -> None:
    assert resolve_max_tokens(10, SamplingParams(max_tokens=wanted), 100, text_tokens=32) == granted


def test_one_token_beyond_the_pool_is_refused() -> None:
    with pytest.raises(KVPoolTooSmallError, match=r"34 tokens.*32"):
        resolve_max_tokens(10, SamplingParams(max_tokens=24), 100, text_tokens=32)


def test_siblings_count_one_by_one_against_the_queue(engine: LLMEngine) -> None:
    engine.add_request([5], SamplingParams(n=4))
    with pytest.raises(EngineOverloadedError):
        engine.add_request([5], SamplingParams(n=3))
    assert engine.stats()["num_waiting"] == 4
    engine.add_request([5], SamplingParams(n=2))


def test_generate_waits_however_long_the_queue(engine: LLMEngine) -> None:
    prompts = [[5, i] for i in range(engine.config.max_waiting + 5)]
    assert len(engine.generate(prompts, GREEDY)) == len(prompts)


def break_down(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The forward pass fails once, after so many that succeed."""
    adapter, calls = engine.model.adapter, iter(range(after + 1))
    forward = adapter.forward

    def broken(*args: Any) -> torch.Tensor:
        if next(calls, None) == after:
            raise RuntimeError("out of memory")
        return forward(*args)

    monkeypatch.setattr(adapter, "forward", broken)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_exception_in_a_step_ends_every_request_of_the_call(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    expected = engine.generate([[5, 6, 7], [8] * 40], GREEDY)
    engine.reset_prefix_cache()
    break_down(engine, monkeypatch, after)
    with pytest.raises(StepFaultError, match=r"RuntimeError: .*out of memory"):
        engine.generate([[5, 6, 7], [8] * 40], GREEDY)
    assert not engine.has_work
    assert engine.stats()["used_blocks"] == 0
    engine.check()
    assert engine.generate([[5, 6, 7], [8] * 40], GREEDY) == expected


def test_interrupt_ends_every_request_of_the_call(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.model.adapter, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([[5], [6]], GREEDY)
    assert not engine.has_work


def test_counters_count_a_prompt_when_its_first_token_comes(engine: LLMEngine) -> None:
    engine.generate([[5, 6, 7], [8] * 40], GREEDY)
    stats = engine.stats()
    assert (stats["prompt_tokens"], stats["generation_tokens"]) == (43, 16)


def test_counters_count_a_prompt_once_though_its_request_fails(engine: LLMEngine) -> None:
    (request,) = engine.add_request([5, 6, 7], GREEDY)
    engine.step()
    engine.model.adapter.embedding.fill_(float("nan"))
    engine.step()
    assert request.finish_reason is FinishReason.ERROR
    assert engine.stats()["prompt_tokens"] == 3


def test_request_id_in_use_is_refused(engine: LLMEngine) -> None:
    engine.add_request([5, 6], GREEDY, request_id="mine")
    try:
        engine.add_request([7, 8], GREEDY, request_id="mine")
    except InvalidRequestError:
        return
    while engine.has_work:
        engine.step()


@pytest.mark.parametrize("prompts", [[5, "6"], [5.0, 6.0], [5, None]])
def test_list_that_is_neither_ids_nor_prompts_is_refused(engine: LLMEngine, prompts: Any) -> None:
    with pytest.raises(InvalidRequestError, match="prompt"):
        engine.generate(prompts, GREEDY)


def test_unknown_parameter_beside_params_is_named(engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError, match="temprature"):
        engine.generate("x", GREEDY, temprature=0)


def test_huge_top_k_does_not_break_the_step(engine: LLMEngine) -> None:
    texts = engine.generate(
        [[5], [6]], temperature=1, top_k=2**31 - 1, max_tokens=2, ignore_eos=True
    )
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("kept", "wanted", "left"),
    [(None, 5, 10), (4, 5, 4), (10, 5, 10), (99, 5, 10), (-1, 5, 10), (-1, 95, 5), (-1, None, 10),
     (-1, 99, 1), (-1, 200, 1)],
)  # fmt: skip
def test_truncation_keeps_the_end_of_a_prompt(
    kept: int | None, wanted: int | None, left: int
) -> None:
    params = SamplingParams(truncate_prompt_tokens=kept, max_tokens=wanted)
    prompt = list(range(10))
    assert truncated(prompt, params, max_model_len=100, text_tokens=999) == prompt[10 - left :]


def test_truncation_makes_room_in_a_small_pool_too() -> None:
    params = SamplingParams(truncate_prompt_tokens=-1, max_tokens=8)
    assert len(truncated([5] * 50, params, max_model_len=100, text_tokens=32)) == 25


@pytest.mark.parametrize("max_tokens", [1, 100, None])
def test_prompt_beyond_the_context_is_cut_to_fit(engine: LLMEngine, max_tokens: int | None) -> None:
    prompt = [5 + i % 300 for i in range(2000)]
    params = SamplingParams(truncate_prompt_tokens=-1, max_tokens=max_tokens, ignore_eos=True)
    (request,) = engine.add_request(prompt, params)
    assert request.num_prompt_tokens == 1024 - (max_tokens or 1)
    assert request.token_ids == prompt[-request.num_prompt_tokens :]
    assert request.num_prompt_tokens + request.max_tokens == 1024


def test_output_that_no_truncation_makes_room_for_is_refused(engine: LLMEngine) -> None:
    with pytest.raises(ContextLengthError, match=r"1024 in the output"):
        engine.add_request([5] * 9, SamplingParams(truncate_prompt_tokens=-1, max_tokens=1024))


@pytest.mark.parametrize("token", [-1, 384, 10**30])
def test_bias_for_a_token_that_the_model_does_not_have_is_refused(
    engine: LLMEngine, token: int
) -> None:
    with pytest.raises(InvalidRequestError, match=r"0 (to|and) (383|999999999)") as error:
        engine.add_request([5], SamplingParams(logit_bias=((token, 1.0),)))
    assert error.value.param == "logit_bias"


@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
def test_priority_that_nothing_heeds_is_refused(folder: Path, policy: str) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=16, policy=policy)
    with pytest.raises(InvalidRequestError, match=r"--policy priority") as error:
        engine.add_request([5], GREEDY, priority=-1)
    assert error.value.param == "priority"
    engine.add_request([5], GREEDY, priority=0)


def test_priority_is_heeded_where_it_decides(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=16, policy="priority", max_num_seqs=1)
    late, early = (engine.add_request([5, 6], GREEDY, priority=p)[0] for p in (3, -3))
    engine.step()
    assert (early.num_output_tokens, late.num_output_tokens) == (1, 0)
