# Lab 2, your part: tasks 2.5, 2.6, 2.7. The rest is given.
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
    # TODO 2.5: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "transformer_ops task 2.5: not implemented yet; see chapter Inside a transformer layer"
    )


# ANCHOR_END: visible_keys


# ANCHOR: causal_attention
def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: Tensor | None
) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d], k and v [n, tk, kv_heads, d].

    kv_lens: [n], the real keys of each row; None means tk. Padding may hold anything finite.
    Returns [n, tq, heads, d].
    """
    # TODO 2.6: your code here (the reference: 26 lines).
    raise NotImplementedError(
        "transformer_ops task 2.6: not implemented yet; see chapter Inside a transformer layer"
    )


# ANCHOR_END: causal_attention


def _explicit_attention(
    rows: Tensor, keys: Tensor, values: Tensor, visible: Tensor, spec: AttentionSpec
) -> Tensor:
    """What the library call cannot do: a softcap on the scores, or sinks in the softmax.

    rows: [n, kv_heads, group, tq, d]; keys, values: [n, kv_heads, 1, tk, d]; visible: [n, 1, 1, tq, tk].
    """
    # TODO 2.7: your code here (the reference: 11 lines).
    raise NotImplementedError(
        "transformer_ops task 2.7: not implemented yet; see chapter Inside a transformer layer"
    )
