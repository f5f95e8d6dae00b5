"""Lab 15 against float64: on the CPU in tiny shapes, on a GPU in real ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

import solutions.cuda_flash_attention.flash_attention as lab
from grader.kit.kernels import attention, attention_gradients, random
from solutions.cuda_flash_attention import FlashAttention
from solutions.cuda_flash_attention.naive import naive_attention, naive_gradients, visible
from yaie.core.batch import AttentionSpec

F32 = torch.float32
TOLERANCE = {F32: 5e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = list(TOLERANCE)
SIZES = [64, 80, 96, 128, 256]
MASK = torch.tensor([[True, False, True], [False, True, True], [False, False, True]])
RULES: list[dict[str, Any]] = [
    {},
    {"causal": False},
    {"window": 7},
    {"causal": False, "block_mask": MASK, "mask_block": 16},
    {"block_mask": MASK, "mask_block": 16},
]


def inputs(
    n: int, tq: int, tk: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> list[Tensor]:
    shapes = ((n, tq, heads, dim), (n, tk, kv_heads, dim), (n, tk, kv_heads, dim))
    return [random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def close(got: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got.double().cpu(), exact, rtol=tolerance, atol=tolerance)


def check(qkv: list[Tensor], rules: dict[str, Any], device: str = "cpu") -> None:
    """Forward, lse and gradients against float64."""
    q, k, v = qkv
    scale, dtype = q.shape[-1] ** -0.5, q.dtype
    grad = random(*q.shape, seed=3, dtype=dtype)
    seen = visible(q.shape[1], k.shape[1], **rules)
    exact, exact_lse = naive_attention(q, k, v, seen, scale)
    moved = {
        name: rule.to(device) if name == "block_mask" else rule for name, rule in rules.items()
    }
    q_, k_, v_, grad_ = (x.to(device) for x in (q, k, v, grad))
    out, lse = FlashAttention().forward(q_, k_, v_, scale=scale, **moved)
    assert out.dtype == dtype
    assert lse.dtype == F32
    close(out, exact, dtype)
    torch.testing.assert_close(lse.double().cpu(), exact_lse, rtol=1e-4, atol=1e-4)
    got = FlashAttention().backward(grad_, q_, k_, v_, out, lse, scale=scale, **moved)
    for mine, right in zip(got, naive_gradients(grad, q, k, v, seen, scale), strict=True):
        assert mine.dtype == dtype
        close(mine, right, dtype)


def test_the_oracle_is_the_graders() -> None:
    q, k, v = inputs(2, 5, 9, 4, 2, 16, F32)
    grad, spec = random(2, 5, 4, 16, seed=3), AttentionSpec(0.25, window=3)
    seen = visible(5, 9, window=3)
    mine = [*naive_attention(q, k, v, seen, 0.25), *naive_gradients(grad, q, k, v, seen, 0.25)]
    right = [*attention(q, k, v, spec), *attention_gradients(grad, q, k, v, spec)]
    for one, other in zip(mine, right, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_every_mask(rules: dict[str, Any]) -> None:
    check(inputs(1, 38, 41, 2, 1, 16, F32), rules)


@pytest.mark.parametrize("dim", SIZES)
def test_every_head_size(dim: int) -> None:
    check(inputs(1, 3, 35, 2, 2, dim, F32), {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype: torch.dtype) -> None:
    check(inputs(1, 9, 35, 2, 1, 80, dtype), {})


def test_single_tokens() -> None:
    check(inputs(2, 1, 1, 2, 1, 16, F32), {})
    check(inputs(1, 1, 70, 1, 1, 16, F32), {})


def test_several_tiles_of_everything() -> None:
    check(inputs(1, 70, 66, 1, 1, 16, F32), {"causal": False})


def test_queries_that_see_nothing() -> None:
    check(inputs(1, 9, 4, 2, 1, 16, F32), {})


def test_nothing_at_all() -> None:
    q, k, v = inputs(1, 0, 5, 2, 1, 16, F32)
    out, lse = FlashAttention().forward(q, k, v, scale=1.0)
    assert out.shape == (1, 0, 2, 16)
    assert lse.shape == (1, 2, 0)


def test_views_of_one_product() -> None:
    fused = random(1, 6, (4 + 2 + 2) * 16, seed=5)
    q, k, v = (x.unflatten(2, (-1, 16)) for x in fused.split([64, 32, 32], dim=2))
    check([q, k, v], {})
    unaligned = random(1, 6, 3 + 64, seed=6)[..., 3:].unflatten(2, (4, 16))
    check([unaligned, k, v], {})


def test_the_naive_kernel_says_the_same() -> None:
    for rules in RULES:
        q, k, v = inputs(1, 9, 12, 2, 1, 16, F32)
        short = dict(rules)
        if "block_mask" in rules:
            short["block_mask"] = MASK[:1, :1]
        seen = visible(9, 12, **short)
        out, lse = lab.naive_forward(q, k, v, scale=0.25, **short)
        exact, exact_lse = naive_attention(q, k, v, seen, 0.25)
        close(out, exact, F32)
        torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dim", "rules", "message"),
    [
        (20, {}, "head size 20"),
        (16, {"causal": False, "window": 3}, "causal"),
        (16, {"block_mask": MASK, "mask_block": 24}, "power of two"),
        (16, {"block_mask": MASK, "mask_block": 16}, "block_mask"),
    ],
)
def test_what_does_not_fit_is_refused(dim: int, rules: dict[str, Any], message: str) -> None:
    q, k, v = inputs(1, 3, 4, 2, 1, dim, F32)
    with pytest.raises(ValueError, match=message):
        FlashAttention().forward(q, k, v, scale=1.0, **rules)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", SIZES)
def test_on_a_gpu(dim: int, dtype: torch.dtype) -> None:
    for sizes in ((2, 130, 300, 6, 2), (1, 257, 257, 4, 4), (1, 90, 50, 2, 1)):
        check(inputs(*sizes, dim, dtype), {}, "cuda")
    check(inputs(1, 200, 200, 2, 1, dim, dtype), {"window": 40}, "cuda")
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    rules = {"causal": False, "block_mask": mask, "mask_block": 64}
    check(inputs(1, 255, 300, 2, 1, dim, dtype), rules, "cuda")


@pytest.mark.gpu
def test_gradients_are_the_same_each_time_on_a_gpu() -> None:
    q, k, v = (x.cuda() for x in inputs(2, 300, 300, 8, 2, 128, torch.bfloat16))
    flash, grad = FlashAttention(), torch.ones_like(q)
    out, lse = flash.forward(q, k, v, scale=0.1)
    first = flash.backward(grad, q, k, v, out, lse, scale=0.1)
    again = flash.backward(grad, q, k, v, out, lse, scale=0.1)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
