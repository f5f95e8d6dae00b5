"""What the kernels compute, in plain Python on float64: the oracle."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec


# ANCHOR: naive_paged_attention
def naive_paged_attention(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """The contract of `PagedAttention.prefill` in float64: follow the table, join the keys, attend."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    block_size, kv_heads = key_blocks.shape[1:3]
    group = q.shape[1] // kv_heads
    starts = query_start_loc.tolist()
    for i, length in enumerate(seq_lens.tolist()):
        table = block_tables[i, : -(-length // block_size)].long()
        keys = key_blocks[table].flatten(0, 1)[:length].double().repeat_interleave(group, dim=1)
        values = value_blocks[table].flatten(0, 1)[:length].double().repeat_interleave(group, dim=1)
        for row in range(starts[i], starts[i + 1]):
            position = length - starts[i + 1] + row
            first = 0 if spec.window is None else max(0, position - spec.window + 1)
            seen = slice(first, position + 1)
            out[row] = _attend(q[row].double(), keys[seen], values[seen], spec)
    return out


def _attend(q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec) -> Tensor:
    """q [heads, d] over keys and values [t, heads, d]."""
    scores = torch.einsum("hd,thd->ht", q, keys) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    if spec.sinks is not None:
        sinks = spec.sinks.double().cpu()[:, None]
        weights = torch.cat((scores, sinks), dim=1).softmax(dim=1)[:, :-1]
    else:
        weights = scores.softmax(dim=1)
    return torch.einsum("ht,thd->hd", weights, values)


# ANCHOR_END: naive_paged_attention


def naive_decode(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """The contract of `PagedAttention.decode` in float64."""
    starts = torch.arange(len(q) + 1)
    return naive_paged_attention(q, key_blocks, value_blocks, block_tables, starts, seq_lens, spec)


# ANCHOR: naive_prefix
def naive_longest_common_prefix(tokens: Tensor, keys: Tensor, key_lens: Tensor) -> Tensor:
    """The contract of `PrefixKernel.longest_common_prefix`, one row and one token at a time."""
    common = []
    for row, length in zip(keys.tolist(), key_lens.tolist(), strict=True):
        count = 0
        for mine, other in zip(tokens.tolist(), row[:length], strict=False):
            if mine != other:
                break
            count += 1
        common.append(count)
    return torch.tensor(common, dtype=torch.int32)


# ANCHOR_END: naive_prefix
