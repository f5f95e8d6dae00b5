"""Tensors that a call leaves behind, and calls whose results are one tensor."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from grader.kit.expect import Mismatch
from grader.kit.storage import CALLS, FEW, calls_kept, expect_calls_apart, expect_nothing_is_kept

Kept = list[Tensor]


def doubled(number: int) -> Tensor:
    return torch.full((100,), float(number)) * 2


def test_what_is_dropped_is_not_kept() -> None:
    assert calls_kept(lambda: doubled(1)) == (0, 0)
    expect_calls_apart({"doubled": doubled})


def test_tensors_of_every_call_are_told_in_bytes() -> None:
    kept: Kept = []
    assert calls_kept(lambda: kept.append(doubled(1))) == (CALLS, CALLS * 400)


def test_a_view_keeps_what_it_is_a_view_of() -> None:
    kept: Kept = []
    assert calls_kept(lambda: kept.append(doubled(1)[:1])) == (CALLS, CALLS * 400)


def test_a_buffer_and_the_last_call_may_stay() -> None:
    buffer, last = torch.empty(100), [torch.empty(0)]

    def call() -> None:
        buffer.copy_(doubled(1))
        last[0] = buffer + 1

    number, _ = calls_kept(call)
    assert 0 < number <= FEW
    expect_nothing_is_kept({"call": call})


def test_the_one_that_keeps_is_named() -> None:
    kept: Kept = []
    calls: dict[str, Callable[[], object]] = {
        "good": lambda: doubled(1),
        "bad": lambda: kept.append(doubled(1)),
    }
    with pytest.raises(Mismatch, match=f"^bad keeps tensors of {CALLS} of {CALLS} calls"):
        expect_nothing_is_kept(calls)


def test_objects_are_counted_too() -> None:
    kept: list[object] = []
    with pytest.raises(Mismatch, match=r"^call keeps .* bytes more"):
        expect_nothing_is_kept({"call": lambda: kept.append({"a": [1] * 100})})


def test_one_buffer_for_all_results_is_found() -> None:
    buffer = torch.empty(100)
    with pytest.raises(Mismatch, match=r"^call: the result of call 1 has changed"):
        expect_calls_apart({"call": lambda number: buffer.copy_(doubled(number))})
