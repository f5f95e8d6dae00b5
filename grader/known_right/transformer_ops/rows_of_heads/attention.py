"""Another right attention: rows, key heads and groups are one batch of matrices.

Queries of a group lie below each other, [n * kv_heads, group * tq, d], so that each key head is read by
one product, `baddbmm` with the mask as what is added.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec


def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """Minus infinity wherever one of two conditions fails: 0 / -inf of a table by their number."""
    shape, device = (len(kv_lens), tq, tk), kv_lens.device
    keys = torch.arange(tk, device=device, dtype=torch.float64).expand(shape)
    first_query = (kv_lens.double() - tq)[:, None, None]
    queries = first_query + torch.arange(tq, device=device)[None, :, None]
    failing = (keys - queries > 0.5).int()
    if window is not None:
        failing += queries - keys > window - 0.5
    table = torch.tensor([0.0, float("-inf"), float("-inf")], dtype=dtype, device=device)
    return table[failing.long()]


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d] and k, v [n, tk, kv_heads, d]."""
    (n, tq, heads, d), (tk, kv_heads) = q.shape, k.shape[1:3]
    group = heads // kv_heads
    rows = q.float().unflatten(2, (kv_heads, group)).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(n * kv_heads, group * tq, d)
    keys, values = (
        part.float().permute(0, 2, 1, 3).reshape(n * kv_heads, tk, d) for part in (k, v)
    )
    added = mask.float().repeat_interleave(kv_heads, dim=0).repeat(1, group, 1)
    if spec.softcap is None:
        scores = torch.baddbmm(added, rows, keys.mT, alpha=spec.scale)
    else:
        scores = torch.bmm(rows, keys.mT).mul_(spec.scale / spec.softcap).tanh_()
        scores = scores.mul_(spec.softcap).add_(added)
    if spec.sinks is not None:
        sinks = spec.sinks.float().view(kv_heads, group).repeat_interleave(tq, dim=1).repeat(n, 1)
        scores = torch.cat((sinks[..., None], scores), dim=-1)
        values = torch.cat((torch.zeros_like(values[:, :1]), values), dim=1)
    out = torch.bmm(torch.softmax(scores, dim=-1), values)
    out = out.view(n, kv_heads, group, tq, d).permute(0, 3, 1, 2, 4)
    return out.reshape(n, tq, heads, d).to(q.dtype)
