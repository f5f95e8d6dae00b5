"""Which cases of a parametrised test CI leaves to the night."""

from collections.abc import Iterable
from typing import Any

import pytest


def nightly_but(always: Iterable[Any], every: Iterable[Any]) -> list[Any]:
    """All of them, for a parametrised test of which CI runs only some; a tuple is several arguments."""
    chosen = list(always)
    return [
        one
        if one in chosen
        else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.nightly)
        for one in every
    ]
