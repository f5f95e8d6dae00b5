"""Attention of a flat batch by kernels: which of its sequences goes to which.

    decodes    one query each                   PagedAttention.decode, all in one call
    chunks     all that is neither              PagedAttention.prefill, all in one call
    prompts    whole, with nothing cached       FlashAttention.forward, those of one length in one call

The keys of a whole prompt are at hand in one piece, so that nobody need fetch them from blocks. Where
a kernel gathers blocks, long chunks go to FlashAttention as well, one by one. The ModelRunner sorts a
batch in the order decodes, chunks, prompts; any other is computed as well, with more of it as chunks.
Nothing here looks at a tensor on the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import Attend, KVPool
from yaie.core.kernels import FlashAttention, PagedAttention, StoreKernel

MOST_PROMPT_CALLS = 8
"""Of FlashAttention in a layer; more prompts of more lengths are chunks, in one call."""
GATHER_FROM = 64
"""Queries of a chunk for which fetching its keys into one piece is worth the way."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Neighbours of one length: rows [start, end) of the flat batch, `length` each."""

    start: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """One chunk: rows [start, end), its `length` keys in the blocks of `table` [1, m]."""

    start: int
    end: int
    length: int
    table: Tensor


@dataclass(frozen=True, slots=True)
class Chunks:
    """Neighbouring sequences as PagedAttention.prefill takes them: rows [start, end) of the batch."""

    start: int
    end: int
    query_start_loc: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    max_query_len: int


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """What every layer of a step shares.

    decodes: how many sequences, at the front, ask one query. longest: keys of the longest of them.
    chunks, gathered, prompts: those behind them, in this order. rest: all three as chunks, for layers
        whose attention FlashAttention does not know (softcap, sinks).
    """

    slot_mapping: Tensor
    decodes: int
    longest: int
    block_tables: Tensor
    seq_lens: Tensor
    chunks: Chunks | None
    gathered: list[Gathered]
    prompts: list[Prompts]
    rest: Chunks | None


class KernelAttention:
    """See `yaie.core.contracts.RadixAttention`; `run` also takes the rotation along (see `Attend`)."""

    takes_rotation = True

    def __init__(
        self,
        pool: KVPool,
        store: StoreKernel,
        flash: FlashAttention,
        paged: PagedAttention,
        rope_and_store: Callable[..., None] | None = None,
        gather: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        """rope_and_store: of LayerKernels; without it the rotation is applied first. gather: of
        MemoryKernels, if long chunks are to be gathered."""
        self._pool = pool
        self._store_kv = store.store_kv
        self._flash = flash
        self._paged = paged
        self._rope_and_store = rope_and_store
        self._gather = gather

    def plan(self, batch: AttentionBatch) -> KernelPlan:
        """Cut the batch into decodes, chunks and prompts."""
        lens, num_seqs = batch.query_lens, len(batch.query_lens)
        decodes = 0
        while decodes < num_seqs and lens[decodes] == 1:
            decodes += 1
        prompts, first = _prompts(batch, decodes)
        gathered: list[Gathered] = []
        if self._gather is not None:
            gathered, first = _long_chunks(batch, decodes, first, self._pool.block_size)
        return KernelPlan(
            slot_mapping=batch.slot_mapping,
            decodes=decodes,
            longest=max(batch.kv_lens[:decodes], default=0),
            block_tables=batch.block_tables[:decodes],
            seq_lens=batch.seq_lens[:decodes],
            chunks=_chunks(batch, decodes, first),
            gathered=gathered,
            prompts=prompts,
            rest=_chunks(batch, decodes, num_seqs),
        )

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: KernelPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d]."""
        keys, values = self._pool.blocks(layer)
        q, k, v = _rows_in_one_piece(q), _rows_in_one_piece(k), _rows_in_one_piece(v)
        if spec.softcap is None and spec.sinks is None:
            chunks, gathered, prompts = plan.chunks, plan.gathered, plan.prompts
        else:
            chunks, gathered, prompts = plan.rest, [], []
        q, k = self._store(q, k, v, keys, values, plan, rotation, keep_k=bool(prompts))
        outputs = [self._decode(q, keys, values, spec, plan)] if plan.decodes else []
        if chunks is not None:
            outputs.append(self._prefill(q, keys, values, spec, chunks))
        outputs += [self._gathered(q, keys, values, spec, one) for one in gathered]
        outputs += [self._whole(q, k, v, spec, group) for group in prompts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _decode(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, plan: KernelPlan
    ) -> Tensor:
        """[decodes, heads, d]: the last query of each sequence."""
        tables, lens = plan.block_tables, plan.seq_lens
        return self._paged.decode(
            q[: plan.decodes], keys, values, tables, lens, spec, max_seq_len=plan.longest
        )

    def _prefill(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, chunks: Chunks
    ) -> Tensor:
        """[rows of the chunks, heads, d]: new tokens attend to what is cached and to each other."""
        return self._paged.prefill(
            q[chunks.start : chunks.end],
            keys,
            values,
            chunks.block_tables,
            chunks.query_start_loc,
            chunks.seq_lens,
            spec,
            max_query_len=chunks.max_query_len,
        )

    def _store(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor,
        values: Tensor,
        plan: KernelPlan,
        rotation: Rotation | None,
        keep_k: bool,
    ) -> tuple[Tensor, Tensor]:
        """Rotate and store; q and k as attention needs them. keep_k: whether it reads k itself."""
        slots = plan.slot_mapping
        if rotation is not None and self._rope_and_store is not None and not keep_k:
            tables = (rotation.positions, rotation.cos, rotation.sin)
            self._rope_and_store(q, k, v, *tables, keys, values, slots)
            return q, k
        if rotation is not None:
            q, k = rotation.apply(q, k)
        self._store_kv(k, v, keys, values, slots)
        return q, k

    def _gathered(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, one: Gathered
    ) -> Tensor:
        """[rows of the chunk, heads, d]: its queries are the last of its keys."""
        assert self._gather is not None
        k, v = (self._gather(blocks, one.table)[:, : one.length] for blocks in (keys, values))
        queries = q[None, one.start : one.end]
        out, _ = self._flash.forward(
            queries, k, v, scale=spec.scale, causal=True, window=spec.window
        )
        return out[0]

    def _whole(
        self, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, group: Prompts
    ) -> Tensor:
        """[rows of the group, heads, d]: each prompt attends to itself."""
        q, k, v = (x[group.start : group.end].unflatten(0, (-1, group.length)) for x in (q, k, v))
        out, _ = self._flash.forward(q, k, v, scale=spec.scale, causal=True, window=spec.window)
        return out.flatten(0, 1)


def _prompts(batch: AttentionBatch, decodes: int) -> tuple[list[Prompts], int]:
    """The groups of whole prompts at the end of a batch, in its order, and the first one's sequence."""
    lens, kv_lens = batch.query_lens, batch.kv_lens
    first = len(lens)
    while first > decodes and lens[first - 1] == kv_lens[first - 1]:
        first -= 1
    sizes = [(length, len(list(same))) for length, same in groupby(lens[first:])]
    end = sum(lens)
    groups: list[Prompts] = []
    first = len(lens)
    for length, count in sizes[::-1][:MOST_PROMPT_CALLS]:
        groups.append(Prompts(end - length * count, end, length))
        end -= length * count
        first -= count
    return groups[::-1], first


def _long_chunks(
    batch: AttentionBatch, decodes: int, last: int, block_size: int
) -> tuple[list[Gathered], int]:
    """Long chunks among sequences [decodes, last), from the end as far as they go; the first of them."""
    lens, kv_lens = batch.query_lens, batch.kv_lens
    end = sum(lens[:last])
    found: list[Gathered] = []
    while last > decodes and lens[last - 1] >= GATHER_FROM and len(found) < MOST_PROMPT_CALLS:
        last -= 1
        num_blocks = -(-kv_lens[last] // block_size)
        table = batch.block_tables[last : last + 1, :num_blocks]
        found.append(Gathered(end - lens[last], end, kv_lens[last], table))
        end -= lens[last]
    return found[::-1], last


def _rows_in_one_piece(x: Tensor) -> Tensor:
    """[T, heads, d] as kernels take it: each token's heads side by side. Models of transformers hand
    over [heads, T, d], seen from the side."""
    heads, d = x.shape[1:]
    return x if x.stride(2) == 1 and (x.stride(1) == d or heads == 1) else x.contiguous()


def _chunks(batch: AttentionBatch, first: int, last: int) -> Chunks | None:
    """Sequences [first, last); those before `first` ask one query each."""
    if first == last:
        return None
    lens = batch.query_lens[first:last]
    starts = batch.query_start_loc[first : last + 1]
    return Chunks(
        start=first,
        end=first + sum(lens),
        query_start_loc=starts - first if first else starts,
        seq_lens=batch.seq_lens[first:last],
        block_tables=batch.block_tables[first:last],
        max_query_len=max(lens),
    )


def attend_through(attention: Any, plan: Any) -> Attend:
    """The `attend` of a step, for attention that takes the rotation along and for any other."""

    def attend(
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        rotation: Rotation | None = None,
    ) -> Tensor:
        if getattr(attention, "takes_rotation", False):
            return attention.run(layer, q, k, v, spec, plan, rotation)
        if rotation is not None:
            q, k = rotation.apply(q, k)
        return attention.run(layer, q, k, v, spec, plan)

    return attend
