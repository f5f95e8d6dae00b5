"""Models all of whose layers have a window, of 24 tokens, made once a process; texts far longer."""

import random

import pytest

from tests.engine.exact import ROUNDING, Case, case_of
from tests.engine.oracle import greedy
from tests.models.tiny import tiny_model

MADE: dict[str, Case] = {}
LENGTHS = (97, 150, 208, 333, 500)
LONG_ANSWER = 64


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family = request.param
    if family not in MADE:
        MADE[family] = case_of(tiny_model(family, tmp_path_factory.mktemp("models") / family))
    return MADE[family]


@pytest.fixture(scope="module")
def long_texts(case: Case) -> Case:
    """Every second begins like the one before. Those whose answer rounding decides are left out."""
    rng = random.Random(7)
    prompts: list[list[int]] = []
    for index in range(3 * len(LENGTHS)):
        text = [rng.randrange(3, 256) for _ in range(LENGTHS[index % len(LENGTHS)])]
        shared = prompts[-1][: len(text) - 20] if index % 2 else []
        prompts.append(shared + text[len(shared) :])
    expected, margins = greedy(case.folder, prompts, LONG_ANSWER)
    chosen = [index for index, margin in enumerate(margins) if margin > ROUNDING]
    assert len(chosen) >= 6
    return Case(case.folder, [prompts[i] for i in chosen], [expected[i] for i in chosen])
