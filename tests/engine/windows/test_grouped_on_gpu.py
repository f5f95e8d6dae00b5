"""A model with two groups of layers on a GPU: transformers' tokens, replayed or launched one by one."""

from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.windows.test_grouped import windowed_blocks
from tests.engine.windows.test_identity import given_back, long_run
from yaie.engine.windows.grouped import GroupedCache

pytestmark = pytest.mark.gpu
SETTINGS: dict[str, dict[str, Any]] = {
    "replayed": {"graphs": "on"},
    "replayed in small chunks": {"graphs": "on", "token_budget": 64},
    "launched": {"graphs": "off", "token_budget": 64},
    "cuda": {"backend": "cuda", "graphs": "on"},
    "pytorch": {"backend": "torch"},
}


OF_FLOAT32 = ("launched", "pytorch")
"""PyTorch's product of experts is captured in half precision alone."""


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (family, name)
        for family in ("gemma3", "olmo3", "gpt_oss")
        for name in (OF_FLOAT32 if family == "gpt_oss" else SETTINGS)
    ],
    indirect=["case"],
    scope="module",
)
def test_answers_are_those_of_transformers(long_texts: Case, name: str) -> None:
    """Twice, with fewer windowed blocks than a text has."""
    with windowed_blocks(120):
        engine = engine_on_gpu(long_texts, max_num_seqs=16, **SETTINGS[name])
    assert isinstance(engine.machine_parts.cache, GroupedCache)
    if SETTINGS[name].get("graphs") == "on":
        assert "replay CUDA graphs" in engine.info.decode_note
    for _ in range(2):
        assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert given_back(engine) > 50
    assert_empty(engine)
    engine.close()
