"""What goes wrong inside costs the request that it happens to, and nobody else."""

from pathlib import Path

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import YaieError
from yaie.core.request import FinishReason, Request

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
