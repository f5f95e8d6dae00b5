"""Another right attention: a softmax in base 2 that a sink only shrinks, and masks that share memory.

With L the log-sum-exp of a row, a sink s takes all weights by the factor 1 / (1 + exp(s - L)), so it
never joins the softmax. A mask of equal rows is one row, expanded.
"""

import math

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec


def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """From `tril` and `triu` of the mask of the longest row, shifted for each length."""
    rows = {}
    for length in kv_lens.unique().tolist():
        seen = torch.ones(tq, tk, dtype=torch.bool, device=kv_lens.device).tril(length - tq)
        if window is not None:
            seen = seen.triu(length - tq - window + 1)
        blank = torch.zeros(tq, tk, dtype=dtype, device=kv_lens.device)
        rows[length] = blank.masked_fill(~seen, -math.inf)
    if len(rows) == 1:
        (only,) = rows.values()
        return only.expand(len(kv_lens), tq, tk)
    return torch.stack([rows[length] for length in kv_lens.tolist()])


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v; b is the row, t the query, s the key, g the key head."""
    grouped = q.float().reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    scores = torch.einsum("btgrd,bsgd->bgrts", grouped, k.float()) * spec.scale
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill((mask == -math.inf)[:, None, None], -math.inf)
    mass = torch.logsumexp(scores, dim=-1, keepdim=True)
    weights = torch.exp2((scores - mass) / math.log(2))
    if spec.sinks is not None:
        sinks = spec.sinks.float().reshape(1, k.shape[2], -1, 1, 1)
        weights = weights * torch.sigmoid(mass - sinks)
    out = torch.einsum("bgrts,bsgd->btgrd", weights, v.float())
    return out.reshape(q.shape).to(q.dtype)
