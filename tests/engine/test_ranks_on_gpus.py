"""Ranks on two and four GPUs give the tokens of one, in float32: graphs, overlap, peer memory."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.exact import assert_empty, outputs
from tests.engine.exact import run as run_all
from tests.engine.mixed import Asked, add_all, expect_same, mixed, plain, run
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.states.cases import decided_case
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
SHARED: dict[str, Any] = {"mine": "none", "dtype": "float32", "max_num_seqs": 16}
ROOMY: dict[str, Any] = {"num_blocks": 300}
TIGHT: dict[str, Any] = {"num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12}
SHAPES: dict[str, dict[str, Any]] = {
    "2x1": {"tensor_parallel": 2, **ROOMY},
    "2x1 tight": {"tensor_parallel": 2, **TIGHT},
    "2x1 nccl": {"tensor_parallel": 2, "collectives": "library", **ROOMY},
    "2x1 no graphs": {"tensor_parallel": 2, "graphs": "off", "overlap": "off", **ROOMY},
    "1x2": {"pipeline_parallel": 2, **ROOMY},
    "1x2 tight": {"pipeline_parallel": 2, **TIGHT},
    "4x1": {"tensor_parallel": 4, **ROOMY},
    "2x2": {"tensor_parallel": 2, "pipeline_parallel": 2, **ROOMY},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tutor(shape: str) -> None:
    expect("tutor", SHAPES[shape])


@pytest.mark.parametrize("shape", ["2x1", "2x1 no graphs", "4x1"])
def test_plain_requests_are_drawn_from_split_logits_as_from_joined_ones(shape: str) -> None:
    expect("tutor", SHAPES[shape], plain)


@pytest.mark.parametrize(
    "family",
    [
        "llama-biases",
        "mistral",
        "qwen2",
        "qwen3",
        "gpt2",
        "gemma3",
        "gpt_oss-20b",
    ],
)
def test_every_family(family: str, tmp_path: Path) -> None:
    expect(str(tiny_model(family, tmp_path / family)), SHAPES["2x1"])


@pytest.mark.parametrize("settings", [{}, {"graphs": "off"}, {"speculate": "ngram"}], ids=str)
@pytest.mark.parametrize("family", ["lfm2", "qwen3_5"])
def test_hybrids(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Transformers' tokens, and again from the cache: each rank has its part of a state."""
    case = decided_case(family, tmp_path / family)
    engine = engine_on_gpu(case, **SHAPES["2x1"], **settings)
    try:
        assert outputs(run_all(engine, case.prompts)) == case.expected
        again = run_all(engine, case.prompts)
        assert outputs(again) == case.expected
        assert max(request.num_cached_tokens for request in again) > 0
        assert_empty(engine)
    finally:
        engine.close()


@pytest.mark.parametrize("collectives", ["auto", "library"])
def test_a_killed_rank_ends_the_engine(collectives: str) -> None:
    """While a graph of rank 0 waits on its GPU for the other's part of a sum."""
    shape = {"tensor_parallel": 2, "collectives": collectives, **ROOMY}
    engine = LLMEngine(EngineConfig(model="tutor", **{**SHARED, **shape}))
    add_all(engine)
    for _ in range(4):
        engine.step()
    (rank,) = multiprocessing.active_children()
    rank.kill()
    killed = time.monotonic()
    with pytest.raises(EngineDeadError, match="rank 1 was ended by SIGKILL"):
        run(engine)
    engine.close()
    torch.cuda.synchronize()
    assert time.monotonic() - killed < 15  # what the page says


def expect(model: str, settings: dict[str, Any], asked: Asked = mixed) -> None:
    config = EngineConfig(model=model, **{**SHARED, **settings})
    if torch.cuda.device_count() < config.num_ranks:
        pytest.skip(f"needs {config.num_ranks} GPUs")
    alone = LLMEngine(EngineConfig(model=model, **{**SHARED, **ROOMY}))
    expected = add_all(alone, asked)
    run(alone)
    alone.close()
    engine = LLMEngine(config)
    try:
        expect_same(engine, expected, asked)
    finally:
        engine.close()
