"""`InvariantAttention`: decode, prefill and chunks are one thing, queries that attend alone.

A token must come out the same whether it was decoded or was part of a prompt, so each query is a
sequence of its own, with the keys up to its own position, for lab 11's decode kernel. That one divides
keys among programs by the number of sequences; here the number of parts and the tile are given. A
part's borders then depend on the length alone.

It costs prefill its reuse: the keys of a chunk are read once for each of its queries.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from yaie.backends.attention import RotateAndStore, rows_in_one_piece
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import KVPool

SPLITS = 16
"""Parts of a sequence's keys: with eight key heads they fill a GPU from one sequence on."""
MOST_ROWS = 1024
"""Queries of a launch: what its parts leave for the second kernel takes 128 MiB with 16 heads of 128."""

AttendAlone = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, AttentionSpec], Tensor]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Each query as a sequence. slot_mapping: [T]; block_tables: [T, m]; seq_lens: [T], the keys that it
    sees, 0 for padding."""

    slot_mapping: Tensor
    block_tables: Tensor
    seq_lens: Tensor


class InvariantAttention:
    """See `KernelAttention`."""

    takes_rotation = True

    def __init__(self, pool: KVPool, store: RotateAndStore, attend: AttendAlone) -> None:
        """attend: of one query a sequence, as lab 11's `decode`, with parts and tile chosen."""
        self._pool = pool
        self._store = store
        self._attend = attend

    def plan(self, batch: AttentionBatch) -> QueryPlan:
        """Which keys each query sees."""
        num_tokens, num_seqs = len(batch.positions), len(batch.query_lens)
        if num_tokens == num_seqs and max(batch.query_lens, default=1) == 1:
            return QueryPlan(batch.slot_mapping, batch.block_tables, batch.seq_lens)
        rows = torch.arange(num_tokens, dtype=torch.int32, device=batch.positions.device)
        ends = batch.query_start_loc[1:].contiguous()
        owner = torch.searchsorted(ends, rows, right=True).clamp(max=num_seqs - 1)
        width = -(-max(batch.kv_lens) // self._pool.block_size)
        is_real = batch.slot_mapping >= 0
        seen = torch.where(is_real, batch.positions + 1, 0).to(torch.int32)
        tables = batch.block_tables[:, :width].index_select(0, owner)
        return QueryPlan(batch.slot_mapping, tables, seen)

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: QueryPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """See `KernelAttention.run`."""
        keys, values = self._pool.blocks(layer)
        q, k, v = rows_in_one_piece(q), rows_in_one_piece(k), rows_in_one_piece(v)
        q, k = self._store(q, k, v, keys, values, plan.slot_mapping, rotation)
        outputs = [
            self._attend(some, keys, values, tables, lens, spec)
            for some, tables, lens in zip(
                q.split(MOST_ROWS),
                plan.block_tables.split(MOST_ROWS),
                plan.seq_lens.split(MOST_ROWS),
                strict=True,
            )
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
