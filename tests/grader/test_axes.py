# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""A test that passes with two axes of a launch grid exchanged is about the axes, and no other one is."""

import os

import pytest
import torch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

import triton.language as tl  # noqa: E402

from grader.kit.axes import forget_launches, wrong_axes  # noqa: E402
from grader.kit.triton_watch import watching  # noqa: E402


@triton.jit
def right_kernel(out, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    tl.store(out + row * COLUMNS + column, row * 10 + column)


@triton.jit
def exchanged_kernel(out, COLUMNS: tl.constexpr):
    row, column = tl.program_id(1), tl.program_id(0)
    tl.store(out + row * COLUMNS + column, row * 10 + column)


@triton.jit
def other_kernel(out, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    tl.store(out + row * COLUMNS + column, row * 11 + column)


def graded(kernel, rows, columns):
    """A test of a kernel, after its first run."""

    def test():
        out = torch.zeros(rows, columns, dtype=torch.int32)
        with watching():
            kernel[rows, columns](out, columns)
        assert out.tolist() == [
            [row * 10 + column for column in range(columns)] for row in range(rows)
        ]

    forget_launches()
    try:
        test()
    except Exception:  # noqa: BLE001, a Fault or a wrong value
        return test, False
    return test, True


def test_a_kernel_that_takes_its_row_from_the_axis_of_columns_is_told_so():
    test, passes = graded(exchanged_kernel, 3, 2)
    assert not passes
    assert wrong_axes(test) == (
        "The programs of exchanged_kernel are numbered down the wrong axis: with program_id(0) and "
        "program_id(1) exchanged in it, this test passes. Launched on a grid of [3, 2], it has 3 "
        "numbers of program_id(0) and 2 of program_id(1). Change the kernel or the launch."
    )


def test_another_mistake_has_nothing_to_do_with_axes():
    test, passes = graded(other_kernel, 3, 2)
    assert not passes
    assert wrong_axes(test) == ""


def test_a_part_that_fails_by_chance_is_not_explained_by_axes():
    _, passes = graded(right_kernel, 3, 2)
    assert passes
    assert wrong_axes(lambda: None) == ""


def test_work_left_undone_is_not_explained_by_axes():
    """A test that counts passes where all programs do the work of the first."""
    stored = torch.zeros(6, 1, dtype=torch.int32)

    def test():
        stored.zero_()
        with watching():
            right_kernel[6, 1](stored, 1)
        assert int((stored > 0).sum()) <= 1

    forget_launches()
    with pytest.raises(AssertionError):
        test()
    assert wrong_axes(test) == ""


def test_a_square_grid_has_no_wrong_axis():
    test, passes = graded(exchanged_kernel, 2, 2)
    assert passes
    forget_launches()
    assert wrong_axes(test) == ""
