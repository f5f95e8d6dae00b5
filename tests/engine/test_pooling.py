"""Pooled hidden states are those of transformers, however the prompt was computed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.oracle import make_prompts
from tests.engine.test_logprobs import _model
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import InvalidRequestError
from yaie.core.request import FinishReason, Request

PROMPTS = [*make_prompts(6, VOCAB), [7], list(range(20, 90))]
CLOSE = 1e-4


def pooled(kind: str) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=1, pooling=kind)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@torch.inference_mode()
def expected(folder: Path, prompt: list[int], kind: str) -> np.ndarray:
    states = _model(folder).model(torch.tensor([prompt])).last_hidden_state[0].double()
    return (states[-1] if kind == "last" else states.mean(dim=0)).numpy()


def embeddings(engine: LLMEngine, prompts: list[list[int]], kind: str) -> list[np.ndarray]:
    """Beside an answer that is longer than all of them."""
    talk = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    engine.add_request([5, 6, 7], talk)
    ids = [engine.add_request(prompt, pooled(kind))[0].request_id for prompt in prompts]
    found = {}
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            if output.embedding is not None:
                assert output.request_id not in found
                found[output.request_id] = np.array(output.embedding)
        engine.check()
    assert found.keys() == set(ids)
    return [found[request_id] for request_id in ids]


@pytest.mark.parametrize("kind", ["last", "mean"])
@pytest.mark.parametrize("budget", [512, 16])
@pytest.mark.parametrize("overlap", ["off", "on"])
def test_states_are_those_of_transformers(
    folder: Path, kind: str, budget: int, overlap: str
) -> None:
    """Whole, and in chunks of 16 tokens; twice, so that the second time all of them are cached."""
    engine = LLMEngine(model=str(folder), num_blocks=128, token_budget=budget, overlap=overlap)
    for _ in range(2):
        for prompt, vector in zip(PROMPTS, embeddings(engine, PROMPTS, kind), strict=True):
            assert np.abs(vector - expected(folder, prompt, kind)).max() < CLOSE


@pytest.mark.parametrize(("preemption", "swap_space"), [("recompute", 0.0), ("swap", 0.01)])
def test_a_prompt_that_is_preempted_half_way_is_summed_once(
    folder: Path, preemption: str, swap_space: float
) -> None:
    """Four answers grow and take its blocks while it gets two tokens a step."""
    engine = LLMEngine(
        model=str(folder), num_blocks=40, block_size=4, token_budget=6, preemption=preemption,
        swap_space=swap_space,
    )  # fmt: skip
    for first in range(4):
        talk = SamplingParams(temperature=0, max_tokens=35, ignore_eos=True)
        engine.add_request([first, 6, 7], talk)
    [vector] = embeddings(engine, [PROMPTS[-1]], "mean")
    assert np.abs(vector - expected(folder, PROMPTS[-1], "mean")).max() < CLOSE
    assert engine.stats()["preemptions"] > 0


def test_a_last_state_may_start_from_a_cached_prefix_and_a_mean_may_not(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=128, block_size=4)
    cached = {}
    for kind in ("last", "mean"):
        for _ in range(2):
            [request] = engine.add_request(PROMPTS[-1], pooled(kind))
            while engine.has_work:
                engine.step()
            cached[kind] = request.num_cached_tokens
    assert cached == {"last": 68, "mean": 0}


def test_a_cache_manager_that_hands_out_a_prefix_all_the_same_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=128, block_size=4)
    embeddings(engine, [PROMPTS[-1]], "last")
    monkeypatch.setattr(Request, "may_reuse_prefix", True)
    [request] = engine.add_request(PROMPTS[-1], pooled("mean"))
    while engine.has_work:
        engine.step()
    assert request.finish_reason is FinishReason.ERROR
    [told] = [one for one in caplog.records if one.exc_info]
    assert "may_reuse_prefix" in str(told.exc_info[1])  # type: ignore[index]


def test_pooling_is_of_one_choice_and_of_a_known_kind() -> None:
    with pytest.raises(InvalidRequestError, match="pooling") as refused:
        SamplingParams(pooling="max")  # type: ignore[arg-type]
    assert refused.value.param == "pooling"
    with pytest.raises(InvalidRequestError, match="must be 1 where pooling") as refused:
        SamplingParams(pooling="last", n=2)
    assert refused.value.param == "n"
