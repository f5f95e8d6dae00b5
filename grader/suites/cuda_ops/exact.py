"""Cases for the operations of a layer, and the operations under test."""

import importlib
from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import watch
from grader.kit.kernels import random

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = st.sampled_from([F32, F16, BF16])
WIDE = "The arithmetic is in float32: neither squares nor their sum fit into 16 bits."
ODD = (
    "Packs of 16 bytes need addresses that are multiples of 16: of the base, and so of the stride and "
    "of the row's size. Where one is not, or where d is no multiple of a pack, numbers go one at a time."
)


def kernels_of(part: ModuleType) -> Any:
    """The operations under test; their calls are written down."""
    return watch(part.LayerKernels(), "kernels")


def sums_of(part: ModuleType) -> Any:
    """The kernels that try task 14.1 alone, which the lab gives."""
    return watch(importlib.import_module(f"{part.__name__}.sums"), "sums")


def spread(x: Tensor, before: int = 0, after: int = 0) -> Tensor:
    """x [tokens, ...] as a view of wider rows, `before` and `after` numbers larger, filled with 99."""
    row = x[0].numel() if len(x) else x.numel()
    wide = torch.full((len(x), before + row + after), 99.0, dtype=x.dtype)
    view = wide[:, before : before + row].view(x.shape)
    return view.copy_(x)


@st.composite
def rows(draw: st.DrawFn, multiple: int = 1) -> Tensor:
    """x [..., d] of any dtype, contiguous or a view of wider rows, aligned or not."""
    lead = draw(st.sampled_from([[0], [1], [2], [5], [2, 3]]))
    d = multiple * draw(st.sampled_from([1, 3, 8, 16, 33, 64, 80, 100, 264]))
    x = random(*lead, d, seed=draw(st.integers(0, 99)), dtype=draw(DTYPES))
    return spread(x, draw(st.integers(0, 8)), draw(st.integers(0, 8)))


@st.composite
def heads(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, int]:
    """(q, k, v, half): views of one product, with a part of each head that turns."""
    tokens, kv_heads = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    count = kv_heads * draw(st.integers(1, 3))
    d, half = draw(st.sampled_from([(16, 8), (64, 32), (20, 10), (32, 8), (48, 8), (10, 3)]))
    product = random(
        tokens,
        (count + 2 * kv_heads) * d + draw(st.integers(0, 1)),
        seed=draw(st.integers(0, 99)),
        dtype=draw(DTYPES),
    )
    sizes = [count * d, kv_heads * d, kv_heads * d]
    q, k, v = product[:, : sum(sizes)].split(sizes, dim=1)
    return q.unflatten(1, (count, d)), k.unflatten(1, (-1, d)), v.unflatten(1, (-1, d)), half
