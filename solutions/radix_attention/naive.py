# ORACLE
"""Paged attention one sequence at a time: follow the table, join the keys, attend. The oracle."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps


# ANCHOR: naive_radix_attention
def naive_radix_attention(
    pool: KVPool,
    ops: TransformerOps,
    layer: int,
    q: Tensor,
    spec: AttentionSpec,
    batch: AttentionBatch,
) -> Tensor:
    """The contract of `RadixAttention.run` after K and V were written: q [T, heads, d] -> same shape."""
    outputs, start = [], 0
    for i, (query_len, kv_len) in enumerate(zip(batch.query_lens, batch.kv_lens, strict=True)):
        num_blocks = -(-kv_len // pool.block_size)
        keys, values = pool.gather(layer, batch.block_tables[i : i + 1, :num_blocks])
        queries = q[start : start + query_len][None]
        keys, values = keys[:, :kv_len], values[:, :kv_len]
        length = torch.tensor([kv_len])
        mask = ops.causal_mask(length, query_len, kv_len, spec.window, q.dtype)
        outputs.append(ops.attention(queries, keys, values, mask, spec)[0])
        start += query_len
    return torch.cat(outputs)


# ANCHOR_END: naive_radix_attention
