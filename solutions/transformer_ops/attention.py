"""Causal grouped-query attention over a padded batch of sequences.

`naive_attention` in `solutions/transformer_ops/naive.py` is the same thing with loops.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec

NEG_INF = float("-inf")


# ANCHOR: causal_mask
def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """What is added to the scores, [n, tq, tk] of `dtype`: 0 where a query sees a key, else -inf.

    kv_lens: [n], the real keys of each row. Query j of row i is at position kv_lens[i] - tq + j. It
    sees the keys up to its own position and, with a window, only the last `window` of them.
    """
    # BEGIN SOLUTION 2.5
    queries = torch.arange(tq, device=kv_lens.device)
    keys = torch.arange(tk, device=kv_lens.device)
    position = (kv_lens[:, None] - tq + queries)[:, :, None]
    visible = keys <= position
    if window is not None:
        visible &= keys > position - window
    return torch.zeros(visible.shape, dtype=dtype, device=keys.device).masked_fill_(
        ~visible, NEG_INF
    )
    # END SOLUTION


# ANCHOR_END: causal_mask


# ANCHOR: attention
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d] and k, v [n, tk, kv_heads, d].

    Head h reads key head h // (heads / kv_heads). mask: [n, tq, tk], as `causal_mask` makes it. What the
    mask hides may hold anything finite. Returns [n, tq, heads, d].
    """
    # BEGIN SOLUTION 2.6
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    mask = mask[:, None]
    if spec.softcap is not None or spec.sinks is not None:
        out = _explicit_attention(q, k, v, mask, spec)
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=spec.scale, enable_gqa=True
        )
    return out.transpose(1, 2)
    # END SOLUTION


# ANCHOR_END: attention


def _explicit_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
) -> Tensor:
    """What the library call cannot do: a softcap on the scores, or sinks in the softmax.

    q: [n, heads, tq, d]; k, v: [n, kv_heads, tk, d]; mask: [n, 1, tq, tk]. Returns [n, heads, tq, d].
    """
    # BEGIN SOLUTION 2.7
    group = q.shape[1] // k.shape[1]
    k, v = (part.float().repeat_interleave(group, dim=1) for part in (k, v))
    scores = (q.float() @ k.transpose(-1, -2)) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    scores = scores + mask
    if spec.sinks is not None:
        sinks = spec.sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
        probs = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        probs = scores.softmax(dim=-1)
    return (probs @ v).to(q.dtype)
    # END SOLUTION
