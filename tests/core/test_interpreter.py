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
