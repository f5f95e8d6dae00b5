# ORACLE
"""The same without any art: in PyTorch, one sequence after the other, and as a first kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import AttentionSpec


# ANCHOR: naive_prefill
def naive_prefill(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """`PagedAttention.prefill`: gather each sequence's keys, and attend in the precision of q."""
    group, block_size = q.shape[1] // key_blocks.shape[2], key_blocks.shape[1]
    outputs, starts = [], query_start_loc.tolist()
    for i, num_keys in enumerate(seq_lens.tolist()):
        queries = q[starts[i] : starts[i + 1]]
        table = block_tables[i, : triton.cdiv(num_keys, block_size)].long()
        k, v = (
            blocks[table].flatten(0, 1)[:num_keys].to(q.dtype).repeat_interleave(group, dim=1)
            for blocks in (key_blocks, value_blocks)
        )
        scores = torch.einsum("qhd,khd->hqk", queries, k) * spec.scale
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        keys = torch.arange(num_keys, device=q.device)
        positions = keys[num_keys - len(queries) :, None]
        visible = keys <= positions
        if spec.window is not None:
            visible &= keys > positions - spec.window
        scores = scores.masked_fill(~visible, float("-inf"))
        if spec.sinks is not None:
            sinks = spec.sinks.to(q.dtype)[:, None, None].expand(-1, len(queries), 1)
            scores = torch.cat((scores, sinks), dim=-1)
        weights = scores.softmax(dim=-1)[..., :num_keys]
        outputs.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(outputs) if outputs else q.clone()


# ANCHOR_END: naive_prefill


def naive_decode(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """`PagedAttention.decode` in PyTorch: a chunk of one query for each sequence."""
    starts = torch.arange(len(q) + 1, device=q.device)
    return naive_prefill(q, key_blocks, value_blocks, block_tables, starts, seq_lens, spec)


# ANCHOR: naive_kernel
@triton.jit
def naive_decode_kernel(
    out,
    q,
    key_blocks,
    value_blocks,
    block_tables,
    seq_lens,
    scale,
    table_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Program (sequence, query head): all keys of the sequence, block after block."""
    seq, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    dims, row = tl.arange(0, DIMS), tl.arange(0, BLOCK_SIZE)
    query = tl.load(q + (seq * HEADS + head) * D + dims, mask=dims < D, other=0.0).to(tl.float32)
    num_keys = tl.load(seq_lens + seq)
    top, total = float("-inf"), 0.0
    acc = tl.zeros([DIMS], tl.float32)
    for start in range(0, num_keys, BLOCK_SIZE):
        block = tl.load(block_tables + seq * table_stride + start // BLOCK_SIZE).to(tl.int64)
        slot = (block * BLOCK_SIZE + row) * KV_HEADS + kv_head
        mask = (start + row < num_keys)[:, None] & (dims < D)[None, :]
        k = tl.load(key_blocks + slot[:, None] * D + dims[None, :], mask=mask, other=0.0)
        v = tl.load(value_blocks + slot[:, None] * D + dims[None, :], mask=mask, other=0.0)
        scores = tl.sum(query[None, :] * k.to(tl.float32), axis=1) * scale
        scores = tl.where(start + row < num_keys, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=0))
        shrink, weights = tl.exp(top - new_top), tl.exp(scores - new_top)
        total = total * shrink + tl.sum(weights, axis=0)
        acc = acc * shrink + tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
        top = new_top
    at = (seq * HEADS + head) * D + dims
    tl.store(out + at, (acc / total).to(out.dtype.element_ty), mask=dims < D)


# ANCHOR_END: naive_kernel


def launch_naive_decode(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """Decode with the kernel above: contiguous tensors, no window, softcap or sinks."""
    n, heads, d = q.shape
    out = torch.empty_like(q)
    naive_decode_kernel[n, heads](
        out,
        q,
        key_blocks,
        value_blocks,
        block_tables,
        seq_lens,
        spec.scale,
        block_tables.stride(0),
        HEADS=heads,
        KV_HEADS=key_blocks.shape[2],
        D=d,
        DIMS=triton.next_power_of_2(d),
        BLOCK_SIZE=key_blocks.shape[1],
    )
    return out
