"""A model with two groups of layers on a GPU: transformers' tokens, replayed or launched one by one."""

from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs
from tests.engine.windows.test_grouped import windowed_blocks
from tests.engine.windows.test_identity import given_back, long_run
from yaie import LLMEngine
from yaie.core.errors import KernelError
from yaie.cuda.nvcc import find_nvcc
from yaie.engine.windows.grouped import GroupedCache

pytestmark = pytest.mark.gpu
SETTINGS: dict[str, dict[str, Any]] = {
    "replayed": {"graphs": "on"},
    "replayed in small chunks": {"graphs": "on", "token_budget": 64},
    "launched": {"graphs": "off", "token_budget": 64},
    "deterministic": {"deterministic": True, "token_budget": 64},
    "cuda": {"backend": "cuda", "graphs": "on"},
    "pytorch": {"backend": "torch"},
}


def engine_on_gpu(case: Case, settings: dict[str, Any]) -> LLMEngine:
    """With no more sizes of graphs than these prompts need."""
    few = {"max_num_seqs": 16, "token_budget": 256, "num_blocks": 512, "dtype": "float32"}
    try:
        return case.engine(**{**few, "device": "cuda", "mine": "none", **settings})
    except KernelError as error:
        if find_nvcc() is not None:
            raise
        pytest.skip(error.message)


@pytest.mark.parametrize("case", ["gemma3", "olmo3"], indirect=True, scope="module")
@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_transformers(long_texts: Case, name: str) -> None:
    """Twice, with fewer windowed blocks than a text has."""
    with windowed_blocks(120):
        engine = engine_on_gpu(long_texts, SETTINGS[name])
    assert isinstance(engine.machine_parts.cache, GroupedCache)
    if SETTINGS[name].get("graphs") == "on":
        assert "replay CUDA graphs" in engine.info.decode_note
    for _ in range(2):
        assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert given_back(engine) > 50
    assert_empty(engine)
    engine.close()
