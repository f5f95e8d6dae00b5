"""Values that no type checker stops and that nobody can mean."""

import math
from typing import Any

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, InvalidRequestError
from yaie.core.params import SamplingParams

HUGE = 10**400  # an integer in JSON, beyond any float


@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty", "repetition_penalty"])
def test_integer_beyond_any_float_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        SamplingParams(**{name: HUGE})


@pytest.mark.parametrize("name", ["n", "seed"])
def test_integer_beyond_64_bits_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        SamplingParams(**{name: HUGE})


@pytest.mark.parametrize("value", ["no", 1, None])
def test_ignore_eos_must_be_true_or_false(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="ignore_eos"):
        SamplingParams(ignore_eos=value)


@pytest.mark.parametrize("space", [math.inf, pytest.param(HUGE, id="10**400")])
def test_swap_space_must_be_finite(space: float) -> None:
    with pytest.raises(ConfigError, match="swap_space"):
        EngineConfig(preemption="swap", swap_space=space)


@pytest.mark.parametrize("name", ["watermark", "swap_space", "kv_memory_share"])
def test_nan_in_the_environment_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        EngineConfig.load(environ={f"YAIE_{name.upper()}": "nan"})
