"""What lanes of a Triton load hold that are masked off: in the graders nothing to rely on."""

import os

import pytest
import torch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

import triton.language as tl  # noqa: E402

from grader.kit.triton_watch import watching  # noqa: E402


@triton.jit
def sum_of(x_ptr, out_ptr, n, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if OTHER:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr, tl.sum(x.to(tl.float32), axis=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_lanes_that_are_masked_off_without_other_hold_anything(dtype: torch.dtype) -> None:
    x, sums = torch.ones(3, dtype=dtype), []
    for other in (True, False):
        out = torch.zeros(1, dtype=dtype)
        with watching():
            sum_of[(1,)](x, out, 3, BLOCK=4, OTHER=other)
        sums.append(float(out))
    assert sums[0] == 3
    assert sums[1] != 3
