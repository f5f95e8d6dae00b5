"""A model whose layers keep a state, on a GPU: transformers' tokens, replayed or launched one by one."""

from typing import Any

import pytest

from tests.engine.exact import Case, outputs, run
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.states.cases import decided_case

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


@pytest.mark.parametrize("case", FAMILIES, indirect=True, scope="module")
@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_transformers(case: Case, name: str) -> None:
    """And again from the cache, which resumes from checkpoints."""
    engine = engine_on_gpu(case, **SETTINGS[name])
    assert outputs(run(engine, case.prompts)) == case.expected
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert max(request.num_cached_tokens for request in again) > 0
    engine.close()
