"""SamplingParams: every wrong value is refused by the name of its field."""

import subprocess
import sys
from typing import Any

import pytest

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams

NAN, INF = float("nan"), float("inf")
WRONG: list[tuple[str, Any]] = [
    *(("temperature", value) for value in (NAN, INF, -0.1, 101, "1", True, None)),
    *(("top_p", value) for value in (0, 1.1, NAN, "x")),
    *(("min_p", value) for value in (-0.1, 1.1, NAN)),
    *(("top_k", value) for value in (-2, 1.5, "4", True)),
    *(("presence_penalty", value) for value in (2.1, -2.1, INF)),
    *(("frequency_penalty", value) for value in (2.1, NAN)),
    *(("repetition_penalty", value) for value in (0, -1, 11, NAN)),
    *(("max_tokens", value) for value in (0, -1, 1.5, "9", True)),
    *(("stop", value) for value in ("", ["a", ""], [1], 5, ["x"] * 65)),
    *(("stop_token_ids", value) for value in ([1.0], ["a"], 7)),
    *(("seed", value) for value in (1.5, "1", 2**63, True)),
    *(("n", value) for value in (0, 129, 1.0, None)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=name) as error:
        SamplingParams(**{name: value})
    assert error.value.param == name
    assert error.value.status == 400


def test_a_stop_string_may_stand_alone_or_in_a_list() -> None:
    assert SamplingParams(stop="a").stop == ("a",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_temperature_zero_is_greedy_and_integers_are_numbers() -> None:
    assert SamplingParams(temperature=0).is_greedy
    assert not SamplingParams(temperature=1).is_greedy


def test_the_ground_floor_loads_without_torch() -> None:
    program = (
        "import sys, yaie, yaie.core.contracts, yaie.core.batch, yaie.core.config\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
