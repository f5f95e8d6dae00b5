"""Qwen3.5's own head on a GPU, where steps that verify its drafts are replayed."""

from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.on_gpu import engine_on_gpu
from tests.engine.states.headed import expect_drafts, expect_some_right, headed_case, seeing
from tests.models.own_heads import NaiveHead

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, NaiveHead]:
    return headed_case(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("graphs", "num_drafts", "num_seqs"), [("on", 3, 24), ("lazy", 4, 2), ("off", 3, 24)]
)
def test_drafts_and_answers_are_those_of_the_references(
    made: tuple[Case, NaiveHead], graphs: str, num_drafts: int, num_seqs: int
) -> None:
    """And again from the cache, which resumes from checkpoints."""
    case, naive = made
    more: dict[str, Any] = {"num_drafts": num_drafts, "max_num_seqs": num_seqs}
    engine = engine_on_gpu(case, speculate="mtp", graphs=graphs, **more)
    with seeing() as seen:
        assert outputs(run(engine, case.prompts)) == case.expected
        again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert max(request.num_cached_tokens for request in again) > 0
    expect_drafts(naive, seen)
    expect_some_right(engine)
    assert_empty(engine)
    engine.close()
