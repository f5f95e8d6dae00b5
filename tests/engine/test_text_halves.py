"""Text halves of models for images: the engine's greedy tokens are those of transformers' models."""

import pytest

from tests.engine.exact import Case, assert_empty, case_of, outputs, run
from tests.engine.test_identity import ALONE
from tests.models.halves import HALVES, tiny_half

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module", params=HALVES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case_of(tiny_half(request.param, tmp_path_factory.mktemp("halves") / request.param))


def test_alone(case: Case) -> None:
    engine = case.engine()
    answers = [outputs(run(engine, [prompt]))[0] for prompt in case.prompts[:ALONE]]
    assert answers == case.expected[:ALONE]


def test_together_and_again_with_cached_prefixes(case: Case) -> None:
    engine = case.engine()
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)


def test_in_chunks(case: Case) -> None:
    assert outputs(run(case.engine(token_budget=16), case.prompts)) == case.expected


def test_preempted(case: Case) -> None:
    engine = case.engine(num_blocks=22, max_num_seqs=16, watermark=0.0)
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 10
    assert outputs(requests) == case.expected
