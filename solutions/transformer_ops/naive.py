# ORACLE
"""Attention as its definition reads: one sequence, one head, one query at a time. The oracle."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec


# ANCHOR: naive_attention
def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: Tensor | None = None
) -> Tensor:
    """The contract of `TransformerOps.attention`, in float64, with loops."""
    n, tq, heads, _ = q.shape
    group = heads // k.shape[2]
    out = torch.empty_like(q)
    for i in range(n):
        length = k.shape[1] if kv_lens is None else int(kv_lens[i])
        for j in range(tq):
            position = length - tq + j
            first = 0 if spec.window is None else max(0, position - spec.window + 1)
            for head in range(heads):
                keys = k[i, first : position + 1, head // group].double()
                values = v[i, first : position + 1, head // group].double()
                out[i, j, head] = _attend_one(q[i, j, head].double(), keys, values, spec, head)
    return out


def _attend_one(q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, head: int) -> Tensor:
    """One query [d] over keys and values [t, d]."""
    scores = keys @ q * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    weights = scores.exp()
    total = weights.sum()
    if spec.sinks is not None:
        total = total + spec.sinks[head].double().exp()
    return (weights / total) @ values


# ANCHOR_END: naive_attention
