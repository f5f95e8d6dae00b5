"""Padded views hold what they should, and a stride that was mixed up is named."""

import math

import pytest
import torch
from torch import Tensor

from grader.kit import Mismatch, kernels
from grader.kit.kernels import Reading, expect_gaps_kept, expect_near, padded, padded_apart
from grader.kit.layout import STRIDE_WHY

F32 = torch.float32


def test_a_padded_view_has_the_same_values_and_nan_between_them() -> None:
    x = kernels.random(2, 3, 4)
    view = padded(x)
    assert torch.equal(view, x)
    assert view.stride() == (21, 6, 1)
    flat = view.as_strided((10,), (1,), view.storage_offset())
    assert flat.isnan().tolist() == [False] * 4 + [True] * 2 + [False] * 4
    before = view.as_strided((1,), (1,), view.storage_offset() - 1)
    assert bool(before.isnan())
    expect_gaps_kept("x", view)


def test_only_the_dimensions_that_are_named_get_gaps() -> None:
    x = kernels.random(2, 3, 4)
    assert padded(x, dims=(0,)).stride() == (15, 4, 1)
    assert padded(x, dims=(-1,)).stride() == (24, 8, 2)
    assert padded(x, dims=()).stride() == x.stride()


def test_strides_keep_to_multiples_and_to_alignment() -> None:
    view = padded(kernels.random(3, 2, 10, dtype=torch.float16), multiple=8)
    assert all(stride % 8 == 0 for stride in view.stride()[:2])
    assert view.data_ptr() % 16 == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
def test_integers_have_a_number_in_their_gaps_that_is_no_index(dtype: torch.dtype) -> None:
    view = padded(torch.zeros(2, 2, dtype=dtype))
    gap = view.as_strided((1,), (1,), view.storage_offset() + 2)
    assert int(gap) == {torch.uint8: 255, torch.bool: 1}.get(dtype, 2**30)


def test_no_stride_of_one_is_anothers() -> None:
    shapes = (4, 2, 8), (4, 2, 8), (4, 3, 8), (4, 26)
    views = padded_apart(*(torch.zeros(shape) for shape in shapes))
    strides = [stride for view in views for stride in view.stride()[:-1]]
    dense = {stride for shape in shapes for stride in torch.zeros(shape).stride()}
    assert len(set(strides)) == len(strides)
    assert not set(strides) & dense


def test_an_empty_tensor_and_a_row_alone_can_be_padded() -> None:
    assert padded(torch.zeros(0, 4)).shape == (0, 4)
    assert padded(torch.ones(1, 4)).stride() == (6, 1)


def test_a_write_into_a_gap_is_named_by_its_offset() -> None:
    view = padded(torch.zeros(2, 4))
    view.as_strided((1,), (1,), view.storage_offset() + 5).fill_(7.0)
    with pytest.raises(Mismatch, match=r"offset 5 was written, .* 2 behind element \[0, 3\]"):
        expect_gaps_kept("out", view)


def add(x: Tensor, residual: Tensor) -> Tensor:
    return x.double() + residual.double()


def test_another_tensors_stride_is_named_with_both_offsets() -> None:
    x, residual = padded_apart(kernels.random(3, 4), kernels.random(3, 4, seed=1))
    reading = Reading(add, {"x": x, "residual": residual})
    (x_stride, _), (own, _) = x.stride(), residual.stride()
    assert x_stride != own
    got, _ = reading.misread("residual", (x_stride, 1))
    with pytest.raises(Mismatch) as raised:
        expect_near(got.float(), add(x, residual), F32, "the sum", reading=reading)
    assert (
        f"element [1, 0] of residual was read from offset {x_stride}, expected {own}: {x_stride} is "
        "x's stride of dimension 0" in raised.value.problem
    )
    assert raised.value.why == STRIDE_WHY


def test_a_stride_that_follows_from_the_shape_is_told_as_such() -> None:
    x = padded(kernels.random(3, 2, 4))
    reading = Reading(lambda x: x.double(), {"x": x})
    got, _ = reading.misread("x", (8, *x.stride()[1:]))
    problem = _problem_of(got.float(), x.double(), reading)
    assert "8 is the stride if x were contiguous" in problem
    got, _ = reading.misread("x", (8, 4, 1))
    problem = _problem_of(got.float(), x.double(), reading)
    assert "[8, 4, 1] are the strides if x were contiguous" in problem


def _problem_of(got: Tensor, exact: Tensor, reading: Reading) -> str:
    with pytest.raises(Mismatch) as raised:
        expect_near(got, exact, F32, "x", reading=reading)
    return raised.value.problem


def test_inputs_that_are_all_taken_for_contiguous_are_told_together() -> None:
    x, residual = padded_apart(kernels.random(3, 4), kernels.random(3, 4, seed=1))
    reading = Reading(add, {"x": x, "residual": residual})
    got, _ = reading.read_with({"x": ((4, 1), 0), "residual": ((4, 1), 0)})
    problem = _problem_of(got.float(), add(x, residual), reading)
    assert f"element [1, 0] of x was read from offset 4, expected {x.stride(0)}" in problem
    assert "x and residual are all read as if they were contiguous" in problem


def test_another_row_is_told_as_a_step() -> None:
    x = padded(kernels.random(4, 4))
    reading = Reading(lambda x: x.double(), {"x": x})
    got = torch.cat([x[1:], torch.full((1, 4), math.nan)])
    assert (
        "was read from offset 6, expected 0: that is one step of dimension 0 after it"
        in _problem_of(got, x.double(), reading)
    )


def test_a_wrong_value_that_no_stride_explains_is_told_as_before() -> None:
    x = padded(kernels.random(3, 4))
    reading = Reading(lambda x: x.double(), {"x": x})
    got = x.clone()
    got[1, 1] += 1
    problem = _problem_of(got, x.double(), reading)
    assert problem == "x: 1 of 12 values differ, the first at [1, 1]"
    got[1, 1] = math.nan
    assert "never written" in _problem_of(got, x.double(), reading)


def test_rows_in_another_order_are_recognised_without_a_reading() -> None:
    x = kernels.random(3, 4)
    with pytest.raises(Mismatch, match=r"row \[0\] holds what row \[2\] should"):
        expect_near(x[[2, 1, 0]], x.double(), F32, "out")
