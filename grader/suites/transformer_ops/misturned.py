"""What a rotation gives with one mistake in it: a wrong result that is one of these is told as that."""

from collections.abc import Iterator

import torch
from torch import Tensor

PAIRS = "A pair is (x[i], x[i + rotary_dim / 2])"
PLACES = (
    "Each token was turned by its place in the batch. A flat batch holds tokens of many sequences: "
    "`positions` says where each one is."
)


def misturned(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
    """x [T, heads, d], turned with each mistake, by what is to say of it."""
    return dict(_mistakes(x.double(), positions, cos.double(), sin.double()))


def _mistakes(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
) -> Iterator[tuple[str, Tensor]]:
    half, size = cos.shape[1], x.shape[-1]
    own = cos[positions], sin[positions]
    first = torch.arange(half)
    kinds = [
        (f"{PAIRS}, not the neighbours (x[2 * i], x[2 * i + 1]).",
         _turned(x, *own, 2 * first, 2 * first + 1)),
        ("This turns the other way: the minus goes to the first half.",
         _turned(x, own[0], -own[1], first, first + half)),
        ("Nothing was turned here.", x.clone()),
        ("cos and sin are exchanged here.", _turned(x, own[1], own[0], first, first + half)),
        ("Every token was turned by the position of the first: `positions` says where each one is.",
         _turned(x, own[0][:1], own[1][:1], first, first + half)),
    ]  # fmt: skip
    yield from kinds
    if len(x) <= len(cos):
        yield PLACES, _turned(x, cos[: len(x)], sin[: len(x)], first, first + half)
    if 2 * half < size:
        columns = f"The tables have {half} columns, so rotary_dim is {2 * half}"
        told = f"{columns}. {PAIRS}: here the halves of the whole head were paired."
        yield told, _turned(x, *own, first, first + size // 2)
        told = (
            f"{columns}: the rest of the head stays as it is. Here the last dimensions were turned."
        )
        yield told, _turned(x, *own, first + size - 2 * half, first + size - half)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """first, second: the dimensions that are paired."""
    out, cos, sin = x.clone(), cos[:, None], sin[:, None]
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out
