"""What Triton's interpreter does as the compiler would, once it is repaired."""

import pytest
import torch
import triton
import triton.language as tl

from yaie.core.interpreter import repair

pytestmark = pytest.mark.skipif(
    not triton.knobs.runtime.interpret, reason="kernels are compiled here"
)
repair()


@triton.jit
def products_kernel(out, step, count, WIDE: tl.constexpr):
    """out[i] = i * step, by a loop with and one without a number of its own for the step."""
    first = tl.program_id(0)
    if WIDE:
        first = first.to(tl.int64)
    for i in range(first, count):
        tl.store(out + i, (i * step).to(tl.int64))
    for i in tl.range(first, count, step=2, num_stages=1):
        tl.store(out + count + i, (i * step).to(tl.int64))


@pytest.mark.parametrize(("wide", "last"), [(True, 2**31), (False, -(2**31))])
def test_numbers_of_a_loop_are_as_wide_as_its_bounds(wide: bool, last: int) -> None:
    out = torch.full((6,), -1)
    products_kernel[(1,)](out, 2**30, 3, WIDE=wide)
    assert out.tolist() == [0, 2**30, last, 0, -1, last]


@triton.jit
def pairs_kernel(halves, numbers, bytes_, out, SIZE: tl.constexpr):
    """out[i, j], a row for each operation: operands of one type and of two, of one shape and of two."""
    lanes = tl.arange(0, SIZE)
    half, number = tl.load(halves + lanes), tl.load(numbers + lanes)
    byte = tl.load(bytes_ + lanes)
    tl.store(out + lanes, half / half * 3)
    tl.store(out + SIZE + lanes, half + number)
    tl.store(out + 2 * SIZE + lanes, byte + byte)
    tl.store(out + 3 * SIZE + lanes, number * tl.load(halves))
    square = half[:, None] * half[None, :] + half[None, :]
    tl.store(out + 4 * SIZE + lanes, tl.sum(square, axis=0))


def test_operands_of_one_type_and_shape_are_computed_as_any_others() -> None:
    """A sum of two int8 is an int8, and what has two shapes is spread."""
    halves = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float16)
    numbers = torch.tensor([5, 6, 7, 8], dtype=torch.int32)
    small = torch.tensor([100, 1, 2, 3], dtype=torch.int8)
    out = torch.zeros(5, 4)
    pairs_kernel[(1,)](halves, numbers, small, out, SIZE=4)
    assert out.tolist() == [
        [3.0] * 4,
        [6.0, 8.0, 10.0, 12.0],
        [-56.0, 2.0, 4.0, 6.0],
        [5.0, 6.0, 7.0, 8.0],
        [14.0, 28.0, 42.0, 56.0],
    ]
