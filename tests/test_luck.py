"""A test's outcome does not depend on luck: what `tests/conftest.py` sees to."""

import random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch


def draws() -> tuple[float, ...]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("spent", [7, 0])
def test_each_test_draws_the_same_whatever_ran_before(spent: int) -> None:
    """The first of the two leaves the generators elsewhere, and then the second does."""
    drawn = draws()
    for _ in range(spent):
        draws()
    seen.append(drawn)
    assert set(seen) == {drawn}


seen: list[tuple[float, ...]] = []


def test_the_same_examples_are_tried_each_time_however_long_they_take() -> None:
    def tried() -> list[int]:
        examples: list[int] = []

        @hypothesis.given(st.integers())
        @hypothesis.settings(max_examples=20)
        def example(number: int) -> None:
            examples.append(number)

        example()
        return examples

    assert tried() == tried()
    assert hypothesis.settings().deadline is None
    assert hypothesis.settings().derandomize
