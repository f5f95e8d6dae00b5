"""gpt-oss on ranks in processes: each has its heads, its sinks and a part of every expert, and gives the
tokens of transformers."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.engine.exact import Case, assert_empty, case_of, outputs, run
from tests.engine.warm_ranks import warm_ranks
from tests.marks import nightly_but
from tests.models.test_mxfp4 import TOLD, random_pair
from tests.models.tiny import tiny_model

pytestmark = pytest.mark.slow
FEW: dict[str, Any] = {"num_blocks": 22, "max_num_seqs": 16, "watermark": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "2x1": {"tensor_parallel": 2, "speculate": "ngram", **FEW},
    "1x2": {"pipeline_parallel": 2, "overlap": "on"},
    "2x2": {"tensor_parallel": 2, "pipeline_parallel": 2, "token_budget": 24, "block_size": 4},
    "4x1": {"tensor_parallel": 4, "collectives": "library"},
}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm_ranks():
        yield


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """With experts in MXFP4, which ranks multiply out, and the tokens of what they stand for."""
    root = tmp_path_factory.mktemp("mxfp4")
    right = tiny_model("gpt_oss-20b", root / "right")
    packed = Path(shutil.copytree(right, root / "packed"))
    weights = load_file(right / "model.safetensors")
    stored = dict(weights)
    for seed, name in enumerate(sorted(weights)):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outs = stored.pop(name).shape
            blocks, scales = random_pair(experts, outs, inputs, seed=seed)
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            dense = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            weights[name] = dense.contiguous()
    save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
    save_file(weights, right / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((packed / "config.json").read_text()) | {"quantization_config": TOLD}
    (packed / "config.json").write_text(json.dumps(config))
    case = case_of(right)
    return Case(packed, case.prompts, case.expected)


@pytest.mark.parametrize("shape", nightly_but(["2x1"], SHAPES))
def test_ranks_give_the_tokens_of_transformers(published: Case, shape: str) -> None:
    engine = published.engine(mine="none", **SHAPES[shape])
    try:
        requests = run(engine, published.prompts)
        assert outputs(requests) == published.expected
        if "watermark" in SHAPES[shape]:
            assert sum(request.num_preemptions for request in requests) >= 5
        assert_empty(engine)
        staged = "pipeline_parallel" in SHAPES[shape]
        told = "all blocks are kept: the stages" if staged else "blocks behind them go back"
        assert told in engine.info.windows
    finally:
        engine.close()
