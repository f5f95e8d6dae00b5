"""The kernels that the chapters about the GPU measure compute what they claim to."""

import os

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

from yaie.bench.evidence import gpu_kernels
from yaie.core.interpreter import repair

repair()


def test_copies_copy() -> None:
    x, out = torch.arange(40.0), torch.zeros(10)
    gpu_kernels.run_copy_strided(x, out, 3)
    assert torch.equal(out, x[:30:3])
    out = torch.zeros(32)
    gpu_kernels.copy_resident[(3,)](x, out, 8, BLOCK=4)
    assert torch.equal(out, x[:32])


def test_a_chain_of_multiplications_has_its_length() -> None:
    x, out = torch.ones(4), torch.zeros(4)
    gpu_kernels.run_fma_chain(x, out, 2)
    assert torch.allclose(out, torch.full((4,), (1 * 0.999 + 1) * 0.999 + 1))


def test_a_chase_follows_the_addresses() -> None:
    following = torch.tensor([3, 0, 1, 2], dtype=torch.int32)
    out = torch.zeros(1, dtype=torch.int32)
    gpu_kernels.chase[(1,)](following, out, 2)
    assert out.tolist() == [1]  # 0 -> 3 -> 2 -> 1


@pytest.mark.parametrize("by_columns", [False, True])
def test_the_norm_does_not_depend_on_the_layout(by_columns: bool) -> None:
    x, w = torch.randn(3, 6), torch.randn(6)
    given = x.t().contiguous().t() if by_columns else x
    out = torch.empty_like(given)
    gpu_kernels.norm(given, w, out)
    right = torch.nn.functional.rms_norm(x, (6,), w, 1e-5)
    assert torch.allclose(out, right, atol=1e-6)
    assert torch.allclose(gpu_kernels.eager_norm(x, w), right, atol=1e-6)
