# ORACLE
"""Attention as its definition reads, and the same with tiles but without any care for speed.

`naive_attention` is the oracle: all scores at once, in float64. `naive_kernel` is FlashAttention with
one program a query tile that visits every key tile and masks all of them.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


# ANCHOR: naive_attention
def visible(
    tq: int,
    tk: int,
    causal: bool = True,
    window: int | None = None,
    block_mask: Tensor | None = None,
    mask_block: int = 128,
) -> Tensor:
    """[tq, tk] bool: which keys each query sees. The arguments are those of the contract."""
    positions = torch.arange(tk - tq, tk)[:, None]
    keys = torch.arange(tk)[None, :]
    seen = torch.ones(tq, tk, dtype=torch.bool)
    if causal:
        seen &= keys <= positions
    if window is not None:
        seen &= keys > positions - window
    if block_mask is not None:
        rows = torch.arange(tq) // mask_block
        columns = torch.arange(tk) // mask_block
        seen &= block_mask.cpu()[rows[:, None], columns[None, :]]
    return seen


def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor
) -> tuple[Tensor, Tensor]:
    """(out, lse) of the contract in float64, for `seen` [tq, tk]. Gradients flow through it."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (part.double().transpose(1, 2) for part in (q, k, v))
    k, v = (part.repeat_interleave(group, dim=1) for part in (k, v))
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen.to(q.device), -math.inf)
    lse = scores.logsumexp(-1)
    # A query that sees nothing: its row is -inf throughout, and its weights shall be 0.
    weights = (scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp()
    return (weights @ v).transpose(1, 2), lse


# ANCHOR_END: naive_attention


# ANCHOR: naive_kernel
@triton.jit
def naive_kernel(
    q, k, v, out, lse, tq, tk, heads, group, scale, BLOCK: tl.constexpr, D: tl.constexpr
):
    """Program (tile, head, batch): causal attention of one query tile of contiguous tensors.

    q, out: [n, tq, heads, D]; k, v: [n, tk, heads / group, D]; lse: [n, heads, tq]. D is a power of two.
    """
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    head, batch = tl.program_id(1), tl.program_id(2)
    columns = tl.arange(0, D)
    query_offsets = ((batch * tq + rows) * heads + head)[:, None] * D + columns[None, :]
    q_tile = tl.load(q + query_offsets, mask=(rows < tq)[:, None], other=0.0)
    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, tk, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        offsets = ((batch * tk + keys) * (heads // group) + head // group)[:, None] * D
        offsets += columns[None, :]
        k_tile = tl.load(k + offsets, mask=(keys < tk)[:, None], other=0.0)
        v_tile = tl.load(v + offsets, mask=(keys < tk)[:, None], other=0.0)
        scores = tl.dot(q_tile, k_tile.T, input_precision="ieee") * scale
        seen = (keys[None, :] <= (tk - tq + rows)[:, None]) & (keys < tk)[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        origin = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp(scores - origin[:, None])
        decay = tl.exp(peak - origin)
        total = total * decay + tl.sum(weights, 1)
        weights = weights.to(v.dtype.element_ty)
        acc = acc * decay[:, None] + tl.dot(weights, v_tile, input_precision="ieee")
        peak = new_peak
    acc = acc / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out + query_offsets, acc.to(out.dtype.element_ty), mask=(rows < tq)[:, None])
    tl.store(lse + (batch * heads + head) * tq + rows, peak + tl.log(total), mask=rows < tq)


# ANCHOR_END: naive_kernel


def naive_forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Launch `naive_kernel` on contiguous tensors with a head size that is a power of two."""
    n, tq, heads, dim = q.shape
    tk, kv_heads = k.shape[1:3]
    out = torch.empty_like(q)
    lse = q.new_empty((n, heads, tq), dtype=torch.float32)
    block = 64 if dim <= 128 else 32
    naive_kernel[triton.cdiv(tq, block), heads, n](
        q, k, v, out, lse, tq, tk, heads, heads // kv_heads, scale, BLOCK=block, D=dim
    )
    return out, lse
