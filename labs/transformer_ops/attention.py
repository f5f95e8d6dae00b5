# Lab 2, your part: tasks 2.5, 2.6, 2.7. The rest is given.
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
    # TODO 2.5: your code here (the reference: 9 lines).
    raise NotImplementedError(
        "transformer_ops task 2.5: not implemented yet; see chapter Inside a transformer layer"
    )


# ANCHOR_END: causal_mask


# ANCHOR: attention
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d] and k, v [n, tk, kv_heads, d].

    Head h reads key head h // (heads / kv_heads). mask: [n, tq, tk], as `causal_mask` makes it. What the
    mask hides may hold anything finite. Returns [n, tq, heads, d].
    """
    # TODO 2.6: your code here (the reference: 9 lines).
    raise NotImplementedError(
        "transformer_ops task 2.6: not implemented yet; see chapter Inside a transformer layer"
    )


# ANCHOR_END: attention


def _explicit_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
) -> Tensor:
    """What the library call cannot do: a softcap on the scores, or sinks in the softmax.

    q: [n, heads, tq, d]; k, v: [n, kv_heads, tk, d]; mask: [n, 1, tq, tk]. Returns [n, heads, tq, d].
    """
    # TODO 2.7: your code here (the reference: 12 lines).
    raise NotImplementedError(
        "transformer_ops task 2.7: not implemented yet; see chapter Inside a transformer layer"
    )
