"""FlashAttention in Triton against float64. Without a GPU the kernels run in Triton's interpreter."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from solutions.triton_flash_attention import FlashAttention, attend
from solutions.triton_flash_attention.flash_attention import make_call
from solutions.triton_flash_attention.naive import naive_attention, naive_forward, visible

F16, F32, BF16 = torch.float16, torch.float32, torch.bfloat16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BOUND = {F32: 3e-5, F16: 4e-3, BF16: 4e-2}
"""Of the largest value. Triton's interpreter cuts bfloat16 off instead of rounding it."""


def problem(
    tq: int,
    tk: int,
    heads: int = 2,
    kv_heads: int = 1,
    dim: int = 64,
    n: int = 1,
    dtype: torch.dtype = F32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one product, so that no tensor is contiguous."""
    torch.manual_seed(seed)
    fused = torch.randn(n, max(tq, tk), heads + 2 * kv_heads, dim).to(dtype).to(DEVICE)
    q, k, v = fused.split([heads, kv_heads, kv_heads], dim=2)
    return q[:, :tq], k[:, :tk], v[:, :tk]


def assert_right(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> None:
    """out, lse and the three gradients are within the dtype's error of float64."""
    kernels, scale = FlashAttention(), q.shape[-1] ** -0.5
    out, lse = kernels.forward(q, k, v, scale=scale, **options)
    grad_out = torch.randn_like(out)
    grads = kernels.backward(grad_out, q, k, v, out, lse, scale=scale, **options)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    seen = visible(q.shape[1], k.shape[1], **options)
    exact_out, exact_lse = naive_attention(wide[0], wide[1], wide[2], scale, seen)
    exact = torch.autograd.grad(exact_out, wide, grad_out.double())

    assert torch.equal(lse.isneginf(), exact_lse.isneginf())
    finite = exact_lse.isfinite()
    assert torch.allclose(lse[finite].double(), exact_lse[finite], rtol=1e-4, atol=1e-4)
    for name, got, right, like in zip(
        ("out", "dq", "dk", "dv"), (out, *grads), (exact_out, *exact), (q, q, k, v), strict=True
    ):
        assert (got.shape, got.dtype) == (like.shape, like.dtype), name
        if right.numel():
            error = (got.double() - right).abs().max() / max(right.abs().max().item(), 1.0)
            assert error < BOUND[q.dtype], f"{name} is off by {error:.1e}"


@pytest.mark.parametrize("dim", [16, 64, 80, 96, 128, 256])
def test_head_sizes(dim: int) -> None:
    assert_right(*problem(21, 37, dim=dim))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_half_precisions(dtype: torch.dtype) -> None:
    assert_right(*problem(40, 70, dtype=dtype), window=30)


@pytest.mark.parametrize(("tq", "tk"), [(1, 1), (1, 300), (300, 1), (129, 129), (5, 260), (0, 4)])
def test_lengths(tq: int, tk: int) -> None:
    assert_right(*problem(tq, tk, heads=1, dim=16))


def test_queries_without_keys() -> None:
    q, k, v = problem(3, 1)
    kernels = FlashAttention()
    out, lse = kernels.forward(q, k[:, :0], v[:, :0], scale=1.0)
    assert out.eq(0).all()
    assert lse.isneginf().all()
    dq, dk, _ = kernels.backward(out, q, k[:, :0], v[:, :0], out, lse, scale=1.0)
    assert dq.eq(0).all()
    assert dk.shape[1] == 0


@pytest.mark.nightly
@settings(max_examples=12, deadline=None)
@given(
    tq=st.integers(1, 80),
    tk=st.integers(1, 80),
    kv_heads=st.sampled_from([1, 2]),
    group=st.sampled_from([1, 2]),
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 90)),
    mask_block=st.sampled_from([None, 16, 32]),
    seed=st.integers(0, 99),
)
def test_random_problems(
    tq: int,
    tk: int,
    kv_heads: int,
    group: int,
    causal: bool,
    window: int | None,
    mask_block: int | None,
    seed: int,
) -> None:
    options: dict[str, Any] = {"causal": causal, "window": window if causal else None}
    if mask_block:
        torch.manual_seed(seed)
        kept = torch.rand(-(-tq // mask_block), -(-tk // mask_block)) < 0.6
        options |= {"block_mask": kept.to(DEVICE), "mask_block": mask_block}
    assert_right(*problem(tq, tk, group * kv_heads, kv_heads, dim=16, seed=seed), **options)


def test_gradients_flow_through_attend() -> None:
    """By finite differences of the kernels' own forward pass, not by another formula."""
    q, k, v = (x.clone().requires_grad_() for x in problem(5, 7, dim=16))
    weights = torch.randn(q.shape, device=DEVICE)

    def loss(*tensors: Tensor) -> Tensor:
        return (attend(FlashAttention(), *tensors, scale=0.25) * weights).sum()

    loss(q, k, v).backward()
    with torch.no_grad():
        for tensor in (q, k, v):
            assert tensor.grad is not None
            for place in ((0, 1, 0, 3), (0, 4, 0, 15)):
                step, at = 1e-2, tensor[place].item()
                tensor[place] = at + step
                above = loss(q, k, v)
                tensor[place] = at - step
                slope = (above - loss(q, k, v)) / (2 * step)
                tensor[place] = at
                assert math.isclose(slope.item(), tensor.grad[place].item(), abs_tol=2e-3)


def test_an_expanded_gradient_is_taken() -> None:
    q, k, v = (x.clone().requires_grad_() for x in problem(5, 7, dim=16))
    attend(FlashAttention(), q, k, v, scale=0.25).sum().backward()
    assert v.grad is not None
    # Each of 5 queries in 2 heads gives its weights, which add up to 1, to all 16 columns.
    assert math.isclose(v.grad.sum().item(), 5 * 2 * 16, rel_tol=1e-4)


def test_the_naive_kernel_agrees() -> None:
    q, k, v = (x.contiguous() for x in problem(70, 90, heads=4, kv_heads=2, n=2))
    out, lse = naive_forward(q, k, v, 0.125)
    exact_out, exact_lse = naive_attention(q, k, v, 0.125, visible(70, 90))
    assert torch.allclose(out.double(), exact_out, atol=1e-5)
    assert torch.allclose(lse.double(), exact_lse, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": -1.0}, "scale must be positive"),
        ({"window": 0}, "a window needs causal, and at least 1 key"),
        ({"window": 3, "causal": False}, "a window needs causal"),
        ({"block_mask": torch.ones(1, 1), "mask_block": 24}, "power of two"),
        ({"block_mask": torch.ones(1, 3), "mask_block": 16}, "does not cover 5 x 7"),
    ],
)
def test_what_the_contract_forbids_is_refused(changes: dict[str, Any], message: str) -> None:
    q, k, v = problem(5, 7)
    options = {"scale": 1.0, "causal": True, "window": None, "block_mask": None, "mask_block": 128}
    with pytest.raises(ValueError, match=message):
        make_call(q, k, v, **{**options, **changes})


def test_shapes_that_do_not_fit_are_refused() -> None:
    q, k, v = problem(5, 7, heads=3, kv_heads=2)
    with pytest.raises(ValueError, match="shapes do not fit"):
        FlashAttention().forward(q, k, v, scale=1.0)
    with pytest.raises(ValueError, match="at most 256"):
        FlashAttention().forward(*problem(1, 1, dim=257), scale=1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
def test_real_sizes(dim: int, dtype: torch.dtype) -> None:
    q, k, v = problem(700, 1000, heads=8, kv_heads=2, dim=dim, n=2, dtype=dtype)
    assert_right(q, k, v)
    assert_right(q, k, v, window=300)
    assert_right(q, k, v, causal=False)
    kept = torch.rand(6, 8, device=DEVICE) < 0.6
    assert_right(q, k, v, block_mask=kept, mask_block=128)


@pytest.mark.gpu
def test_float32_is_not_rounded_to_tf32() -> None:
    assert_right(*problem(300, 300, dim=128))
    assert_right(*problem(100, 130, dim=256))


@pytest.mark.gpu
def test_offsets_beyond_32_bits() -> None:
    """A row stride of 2**22 elements: the last of 600 rows begins past 2**31."""
    room = torch.zeros(600 * 2**22, dtype=F16, device=DEVICE)
    q, k, v = (
        room.as_strided((1, 600, 1, 64), (0, 2**22, 64, 1), 64 * index).normal_()
        for index in range(3)
    )
    assert_right(q, k, v)
