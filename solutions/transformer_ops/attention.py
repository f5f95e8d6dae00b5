"""Causal grouped-query attention over a padded batch of sequences.

`naive_attention` in `naive.py` is the same thing with loops over sequences, heads and queries.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec

NEG_INF = float("-inf")


# ANCHOR: visible_keys
def visible_keys(tq: int, tk: int, kv_lens: Tensor, window: int | None) -> Tensor:
    """Which keys each query may see, as bool [n, tq, tk].

    kv_lens: [n]. Query j of row i stands at position kv_lens[i] - tq + j. It sees the keys up to
    its own position and, with a window, only the last `window` of them.
    """
    # BEGIN SOLUTION 2.5
    queries = torch.arange(tq, device=kv_lens.device)
    keys = torch.arange(tk, device=kv_lens.device)
    position = (kv_lens[:, None] - tq + queries)[:, :, None]
    visible = keys <= position
    if window is not None:
        visible &= keys > position - window
    return visible
    # END SOLUTION


# ANCHOR_END: visible_keys


# ANCHOR: causal_attention
def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: Tensor | None
) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d], k and v [n, tk, kv_heads, d].

    kv_lens: [n], the real keys of each row; None means tk. Padding may hold anything finite.
    Returns [n, tq, heads, d].
    """
    # BEGIN SOLUTION 2.6
    n, tq, heads, dim = q.shape
    tk, kv_heads = k.shape[1], k.shape[2]
    whole = kv_lens is None and tq == tk and spec.window is None
    lens = torch.full((n,), tk, device=q.device) if kv_lens is None else kv_lens
    # The query heads that share a key head become rows of one matrix product, so that K and V are
    # read once for the whole group instead of being repeated for each head.
    group = heads // kv_heads
    rows = q.view(n, tq, kv_heads, group, dim).permute(0, 2, 3, 1, 4)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    if spec.softcap is not None or spec.sinks is not None:
        visible = visible_keys(tq, tk, lens, spec.window)[:, None, None]
        out = _explicit_attention(rows, keys[:, :, None], values[:, :, None], visible, spec)
    elif whole:
        wide = (n, kv_heads, group, tk, dim)
        keys, values = (x[:, :, None].expand(wide).flatten(1, 2) for x in (keys, values))
        out = F.scaled_dot_product_attention(
            rows.flatten(1, 2), keys, values, is_causal=True, scale=spec.scale
        ).view(n, kv_heads, group, tq, dim)
    else:
        visible = visible_keys(tq, tk, lens, spec.window)[:, None].expand(n, group, tq, tk)
        out = F.scaled_dot_product_attention(
            rows.flatten(2, 3),
            keys,
            values,
            attn_mask=visible.flatten(1, 2)[:, None],
            scale=spec.scale,
        ).view(n, kv_heads, group, tq, dim)
    return out.permute(0, 3, 1, 2, 4).reshape(n, tq, heads, dim)
    # END SOLUTION


# ANCHOR_END: causal_attention


def _explicit_attention(
    rows: Tensor, keys: Tensor, values: Tensor, visible: Tensor, spec: AttentionSpec
) -> Tensor:
    """What the library call cannot do: a softcap on the scores, or sinks in the softmax.

    rows: [n, kv_heads, group, tq, d]; keys, values: [n, kv_heads, 1, tk, d]; visible: [n, 1, 1, tq, tk].
    """
    # BEGIN SOLUTION 2.7
    scores = (rows.float() @ keys.float().transpose(-1, -2)) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    scores = scores.masked_fill(~visible, NEG_INF)
    if spec.sinks is not None:
        kv_heads, group = rows.shape[1], rows.shape[2]
        sinks = spec.sinks.float().view(1, kv_heads, group, 1, 1).expand(*scores.shape[:-1], 1)
        probs = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        probs = scores.softmax(dim=-1)
    return (probs @ values.float()).to(rows.dtype)
    # END SOLUTION
