"""The model of a family that keeps states, made once a process."""

import pytest

from tests.engine.exact import Case, case_of
from tests.models.tiny import AMPLIFIED, tiny_model

MADE: dict[str, Case] = {}


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family = request.param
    if family not in MADE:
        folder = tiny_model(family, tmp_path_factory.mktemp("models") / family)
        margin = (AMPLIFIED[family], 16) if family in AMPLIFIED else ()
        MADE[family] = case_of(folder, *margin)
    return MADE[family]
