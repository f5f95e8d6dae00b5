"""Attention over pieces of the keys, and what becomes of it if they are joined wrongly."""

from typing import Any

import torch
from torch import Tensor

SIZES = (16, 32, 64, 128, 256, 512)


def own_maxima(got: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> str:
    """Whether pieces of the keys were added up without a common maximum.

    q [n, tq, heads, d]; k, v [n, tk, 1, d]. A query sees all keys but those behind it.
    """
    tq, tk = q.shape[1], k.shape[1]
    keys, values = k[:, :, 0].double(), v[:, :, 0].double()
    scores = torch.einsum("nqhd,nkd->nhqk", q.double(), keys) * scale
    behind = torch.arange(tk) > torch.arange(tk - tq, tk)[:, None]
    scores = scores.masked_fill(behind, float("-inf"))
    for size in SIZES:
        pieces = scores.split(size, -1)
        tops = [piece.amax(-1, keepdim=True).clamp(min=-1e30) for piece in pieces]
        weights = [(piece - top).exp() for piece, top in zip(pieces, tops, strict=True)]
        whole = torch.cat(weights, -1)
        shares = whole / whole.sum(-1, keepdim=True)
        out = torch.einsum("nhqk,nkd->nqhd", shares, values)
        if out.shape == got.shape and torch.allclose(got.double(), out, rtol=1e-3, atol=1e-4):
            return (
                f"Pieces of {size} keys were added up as they are, each relative to a maximum of its "
                "own: bring them to one maximum first."
            )
    return ""
