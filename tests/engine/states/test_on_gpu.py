"""A model whose layers keep a state, on a GPU: transformers' tokens, replayed or launched one by one."""

from typing import Any

import pytest

from tests.engine.exact import Case, outputs, run
from tests.engine.states.cases import decided_case
from yaie import LLMEngine
from yaie.core.errors import KernelError
from yaie.cuda.nvcc import find_nvcc

pytestmark = pytest.mark.gpu
FAMILIES = ("lfm2", "qwen3_5", "granite4-h")
SETTINGS: dict[str, dict[str, Any]] = {
    "replayed": {"graphs": "on"},
    "in small chunks": {"graphs": "on", "token_budget": 64},
    "launched": {"graphs": "off", "token_budget": 64},
    "cuda": {"backend": "cuda", "graphs": "on"},
    "pytorch": {"backend": "torch"},
}


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return decided_case(request.param, tmp_path_factory.mktemp("models") / request.param)


def engine_on_gpu(case: Case, settings: dict[str, Any]) -> LLMEngine:
    """With no more sizes of graphs than these prompts need."""
    few = {"max_num_seqs": 24, "token_budget": 256, "num_blocks": 512, "dtype": "float32"}
    try:
        return case.engine(**{**few, "device": "cuda", "mine": "none", **settings})
    except KernelError as error:
        if find_nvcc() is not None:
            raise
        pytest.skip(error.message)


@pytest.mark.parametrize("case", FAMILIES, indirect=True, scope="module")
@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_transformers(case: Case, name: str) -> None:
    """And again from the cache, which resumes from checkpoints."""
    engine = engine_on_gpu(case, SETTINGS[name])
    assert outputs(run(engine, case.prompts)) == case.expected
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert max(request.num_cached_tokens for request in again) > 0
    engine.close()
