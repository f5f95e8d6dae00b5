"""Another right attention: loops over sequences, key heads and queries, in float64.

What a query sees is a run of neighbouring keys. Its two ends are read off the mask, once for each
query, and the keys outside are never multiplied. All is float64.
"""

import math

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec


def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """Filled with -inf, and cleared span by span."""
    mask = torch.full((len(kv_lens), tq, tk), -math.inf, dtype=dtype, device=kv_lens.device)
    for row, length in zip(mask, kv_lens.tolist(), strict=True):
        for j, seen in enumerate(row):
            end = length - tq + j + 1
            begin = 0 if window is None else max(0, end - window)
            seen[begin : max(0, end)] = 0
    return mask


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v, query by query for all heads of a group."""
    (n, tq, heads, d), kv_heads = q.shape, k.shape[2]
    out = torch.empty((n, tq, heads, d), dtype=q.dtype, device=q.device)
    group = heads // kv_heads
    sinks = None if spec.sinks is None else spec.sinks.double()
    for i in range(n):
        for j in range(tq):
            seen = (mask[i, j] == 0).nonzero().flatten()
            begin, end = int(seen[0]), int(seen[-1]) + 1
            for head in range(kv_heads):
                of_group = slice(head * group, (head + 1) * group)
                out[i, j, of_group] = _attend(
                    q[i, j, of_group].double(),
                    k[i, begin:end, head].double(),
                    v[i, begin:end, head].double(),
                    spec,
                    None if sinks is None else sinks[of_group],
                ).to(q.dtype)
    return out


def _attend(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, sinks: Tensor | None) -> Tensor:
    """q [group, d] over k, v [t, d]; sinks [group]."""
    scores = q @ k.T * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    top = scores.amax(dim=1, keepdim=True)
    if sinks is not None:
        top = torch.maximum(top, sinks[:, None])
    weights = (scores - top).exp()
    total = weights.sum(dim=1, keepdim=True)
    if sinks is not None:
        total = total + (sinks[:, None] - top).exp()
    return weights @ v / total
