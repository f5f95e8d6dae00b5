"""A model of which some layers have a window, its heads split over two GPUs: blocks go back on each."""

from typing import Any

import pytest
import torch

from tests.engine.exact import Case
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.windows.on_ranks import expect_tokens_and_blocks_back
from tests.engine.windows.test_grouped import windowed_blocks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "replayed": {"graphs": "on"},
    "replayed in small chunks": {"graphs": "on", "token_budget": 64},
    "launched": {"graphs": "off", "token_budget": 64},
    "drafts": {"graphs": "off", "speculate": "ngram", "token_budget": 64},
    "library": {"graphs": "off", "collectives": "library", "prefix_caching": False},
}
OF_EXPERTS = ("launched", "library")
"""PyTorch's product of experts is captured in half precision alone."""


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (family, name)
        for family in ("gemma3", "gpt_oss")
        for name in (OF_EXPERTS if family == "gpt_oss" else SETTINGS)
    ],
    indirect=["case"],
    scope="module",
)
def test_two_gpus_give_the_tokens_of_transformers(long_texts: Case, name: str) -> None:
    with windowed_blocks(120):
        engine = engine_on_gpu(long_texts, tensor_parallel=2, max_num_seqs=16, **SETTINGS[name])
    replays = "replay CUDA graphs" in engine.info.decode_note
    expect_tokens_and_blocks_back(engine, long_texts)
    assert replays or SETTINGS[name]["graphs"] == "off"
