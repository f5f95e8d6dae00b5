"""Drafts for a model that keeps states, on a GPU, where steps that verify few of them are replayed."""

from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.states.cases import decided_case
from tests.engine.states.test_drafts import expect_some_right, guessing
from yaie.core.step import StepInput
from yaie.worker.unsettled import UnsettledChunks, UnsettledStates, UnsettledStep

pytestmark = pytest.mark.gpu
FAMILIES = ("lfm2", "qwen3_5", "granite4-h")


@pytest.fixture(scope="module")
def decided(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return decided_case(request.param, tmp_path_factory.mktemp("models") / request.param)


@pytest.mark.parametrize("decided", FAMILIES, indirect=True, scope="module")
@pytest.mark.parametrize(
    ("graphs", "num_drafts", "num_seqs"),
    [("on", 4, 24), ("on", 2, 5), ("lazy", 8, 1), ("off", 4, 24)],
)
def test_answers_are_those_of_transformers(
    decided: Case, monkeypatch: pytest.MonkeyPatch, graphs: str, num_drafts: int, num_seqs: int
) -> None:
    """And again from the cache, which resumes from checkpoints."""
    settled: list[type[UnsettledStates]] = []
    settle = UnsettledStates.settle

    def noted(self: UnsettledStates, step: StepInput, gained: Any) -> None:
        settled.append(type(self))
        settle(self, step, gained)

    monkeypatch.setattr(UnsettledStates, "settle", noted)
    more = {"speculate": "ngram", "num_drafts": num_drafts, "max_num_seqs": num_seqs}
    with guessing(decided):
        engine = engine_on_gpu(decided, graphs=graphs, **more)
        assert outputs(run(engine, decided.prompts)) == decided.expected
        again = run(engine, decided.prompts)
    assert outputs(again) == decided.expected
    assert max(request.num_cached_tokens for request in again) > 0
    expect_some_right(engine)
    if graphs == "off":
        assert set(settled) == {UnsettledStep}
    elif num_seqs < 24:
        assert settled.count(UnsettledChunks) > 10
    else:  # steps of more drafts than are replayed
        assert {*settled} == {UnsettledChunks, UnsettledStep}
    assert_empty(engine)
    engine.close()
