"""What goes wrong inside costs the request that it happens to, and nobody else."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import YaieError
from yaie.core.request import FailureKind, FinishReason, Request
from yaie.engine.step.explaining import StepFaultError

POISON = 300
PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


def poisoned_engine(folder: Path, value: float) -> LLMEngine:
    """An engine whose model computes `value` wherever it meets the token POISON."""
    engine = LLMEngine(model=str(folder), num_blocks=40, token_budget=32)
    engine.model.adapter.embedding[POISON] = value
    return engine


def run(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    requests = [engine.add_request(prompt, PARAMS)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    return requests


CLEAN = [[5, 6, 7], list(range(20, 60)), [9] * 17]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_end_their_request_and_no_other(
    folder: Path, value: float
) -> None:
    expected = [request.output_token_ids for request in run(poisoned_engine(folder, value), CLEAN)]
    engine = poisoned_engine(folder, value)
    poison = [POISON, *range(40)]
    failed, *others = run(engine, [poison, *CLEAN])
    assert failed.finish_reason is FinishReason.ERROR
    assert "not finite" in (failed.error or "")
    assert [request.output_token_ids for request in others] == expected
    assert engine.stats()["failed_requests"] == 1


def test_blocks_left_by_a_failed_request_do_no_harm_to_the_next_owner(folder: Path) -> None:
    expected = [r.output_token_ids for r in run(poisoned_engine(folder, 0.0), CLEAN)]
    engine = poisoned_engine(folder, float("nan"))
    for _ in range(3):
        run(engine, [[POISON, *range(100)]])  # NaN in seven blocks, which then are free
        engine.reset_prefix_cache()
        assert [request.output_token_ids for request in run(engine, CLEAN)] == expected


def test_generate_says_which_error_ended_it_and_leaves_nothing_behind(folder: Path) -> None:
    engine = poisoned_engine(folder, float("nan"))
    with pytest.raises(YaieError, match="not finite"):
        engine.generate([[POISON, 5], [5, 6, 7]], PARAMS)
    assert not engine.has_work
    assert engine.stats()["used_blocks"] == 0


def test_one_nan_in_a_middle_chunk_leaves_nothing_behind(folder: Path) -> None:
    prompt = [(3 * i) % 200 + 20 for i in range(90)]
    expected = run(poisoned_engine(folder, 0.0), [prompt])[0].output_token_ids
    engine = poisoned_engine(folder, 0.0)
    forward, calls = engine.model.adapter.forward, []

    def once(*args: Any) -> torch.Tensor:
        hidden: torch.Tensor = forward(*args)
        calls.append(len(hidden))
        # The second of three chunks, which draws nothing.
        return hidden * float("nan") if len(calls) == 2 else hidden

    engine.model.adapter.forward = once
    (failed,) = run(engine, [prompt])
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.failure is FailureKind.CORRUPTED
    (again,) = run(engine, [prompt])
    assert again.output_token_ids == expected
    # What the first chunk computed may be kept; the second chunk's blocks may not.
    assert again.num_cached_tokens == 32


@pytest.mark.parametrize("policy", ["fcfs", "priority", "lpm"])
def test_a_long_prompt_of_high_rank_starves_no_running_decode(folder: Path, policy: str) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=60, token_budget=16, policy=policy)
    talkers = [engine.add_request([5 + i, 6, 7], PARAMS)[0] for i in range(4)]
    engine.step()
    first = -1 if policy == "priority" else 0
    (long,) = engine.add_request(list(range(20, 200)), PARAMS, priority=first)
    for _ in range(6):
        before = [talker.num_output_tokens for talker in talkers]
        engine.step()
        assert [talker.num_output_tokens for talker in talkers] == [n + 1 for n in before]
    assert long.num_computed_tokens == 6 * 12


def test_what_breaks_a_step_is_told_with_its_place(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=40)
    engine._machine.worker.sampler.sample = None  # type: ignore[union-attr]
    engine.add_request([5, 6], PARAMS)
    with pytest.raises(StepFaultError, match=r"NoneType.*yaie/worker/worker\.py, line \d+"):
        engine.step()
