"""Greedy tokens on a GPU are transformers' own, for every family, replayed or launched one by one."""

import pytest

from tests.engine.exact import Case, case_of, outputs, run
from tests.engine.on_gpu import engine_on_gpu, expect_twice_on_gpu
from tests.engine.test_identity import FAMILIES
from tests.models.tiny import tiny_model

pytestmark = pytest.mark.gpu
WITH_EXPERTS = ("gpt_oss", "gpt_oss-20b", "gpt_oss-120b", "gemma4-26b", "moe-qwen2")
"""PyTorch's product of experts in float32 looks at their rows on the CPU, which no graph can record."""


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """With wider margins than on a CPU: sums have other orders."""
    folder = tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param)
    return case_of(folder, rounding=1e-3, spare=40)


@pytest.mark.parametrize("case", FAMILIES, indirect=True, scope="module")
@pytest.mark.parametrize("graphs", ["on", "off"])
def test_together_and_again(case: Case, graphs: str) -> None:
    if graphs == "on" and case.folder.name in WITH_EXPERTS:
        graphs = "auto"
    expect_twice_on_gpu(case, graphs=graphs)


@pytest.mark.parametrize("case", WITH_EXPERTS, indirect=True, scope="module")
def test_experts_in_bfloat16_are_recorded(case: Case) -> None:
    """Each request alone, whose launches have the sizes that are replayed."""
    answers = []
    for graphs in ("on", "off"):
        engine = engine_on_gpu(case, graphs=graphs, dtype="bfloat16", max_num_seqs=4)
        answers.append([outputs(run(engine, [prompt]))[0] for prompt in case.prompts[:16]])
        engine.close()
    assert answers[0] == answers[1]
