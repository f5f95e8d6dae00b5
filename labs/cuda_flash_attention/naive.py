"""Attention and its gradients with the whole matrix of scores, in float64: the oracle."""

import math

import torch
from torch import Tensor


# ANCHOR: visible
def visible(
    tq: int,
    tk: int,
    *,
    causal: bool = True,
    window: int | None = None,
    block_mask: Tensor | None = None,
    mask_block: int = 128,
) -> Tensor:
    """Which keys each query sees: [tq, tk] bool. See `yaie.core.contracts.kernels.FlashAttention`."""
    positions = torch.arange(tk - tq, tk)[:, None]
    keys = torch.arange(tk)
    seen = torch.ones(tq, tk, dtype=torch.bool)
    if causal:
        seen &= keys <= positions
    if window is not None:
        seen &= keys > positions - window
    if block_mask is not None:
        wide = block_mask.cpu().repeat_interleave(mask_block, 0).repeat_interleave(mask_block, 1)
        seen &= wide[:tq, :tk]
    return seen


# ANCHOR_END: visible


# ANCHOR: naive_attention
def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """(out [n, tq, heads, d], lse [n, heads, tq]) in float64. seen: [tq, tk] bool."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (tensor.double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(group, dim=2) for tensor in (k, v))
    scores = torch.einsum("nqhd,nkhd->nhqk", q, k) * scale
    scores = scores.masked_fill(~seen.to(q.device), -math.inf)
    lse = scores.logsumexp(dim=-1)
    # A query that sees nothing has an lse of -inf, and weights of exp(-inf + inf): they are to be 0.
    weights = (scores - lse[..., None]).exp().nan_to_num(nan=0.0)
    return torch.einsum("nhqk,nkhd->nqhd", weights, v), lse


# ANCHOR_END: naive_attention


def naive_gradients(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) in float64, by the chain rule on the matrix of scores."""
    heads, kv_heads = q.shape[2], k.shape[2]
    group = heads // kv_heads
    q, k, v, grad_out = (tensor.double() for tensor in (q, k, v, grad_out))
    wide_k, wide_v = (tensor.repeat_interleave(group, dim=2) for tensor in (k, v))
    out, lse = naive_attention(q, k, v, seen, scale)
    scores = torch.einsum("nqhd,nkhd->nhqk", q, wide_k) * scale
    scores = scores.masked_fill(~seen.to(q.device), -math.inf)
    weights = (scores - lse[..., None]).exp().nan_to_num(nan=0.0)
    grad_weights = torch.einsum("nqhd,nkhd->nhqk", grad_out, wide_v)
    delta = (grad_out * out).sum(-1).transpose(1, 2)[..., None]
    grad_scores = weights * (grad_weights - delta)
    dq = torch.einsum("nhqk,nkhd->nqhd", grad_scores, wide_k) * scale
    dk = torch.einsum("nhqk,nqhd->nkhd", grad_scores, q) * scale
    dv = torch.einsum("nhqk,nqhd->nkhd", weights, grad_out)
    dk, dv = (grad.unflatten(2, (kv_heads, group)).sum(3) for grad in (dk, dv))
    return dq, dk, dv
