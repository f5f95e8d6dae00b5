"""Radix attention without groups: a plan is a list of sequences, and each has a call of its own.

Different from the reference: nothing is padded to another's length, so that only the end of a last block
must be cleaned, and `groups_of` is not used.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps


@dataclass(slots=True)
class PlannedSequence:
    """rows: of its queries in the flat batch. table: [1, m] int64. kv_len: [1] int64, and as a number.

    masks: [1, queries, num_keys], by window.
    """

    rows: slice
    table: Tensor
    kv_len: Tensor
    num_keys: int
    masks: dict[int | None, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class SequencePlan:
    slots: Tensor
    sequences: list[PlannedSequence]


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool = pool
        self._ops = ops

    def plan(self, batch: AttentionBatch) -> SequencePlan:
        """Cut each sequence's rows and blocks out of the batch."""
        sequences, start = [], 0
        for i, (queries, keys) in enumerate(zip(batch.query_lens, batch.kv_lens, strict=True)):
            blocks = (keys + self._pool.block_size - 1) // self._pool.block_size
            table = batch.block_tables[i : i + 1, :blocks].long()
            kv_len = batch.seq_lens[i : i + 1].long()
            rows = slice(start, start + queries)
            sequences.append(PlannedSequence(rows, table, kv_len, keys))
            start += queries
        return SequencePlan(batch.slot_mapping, sequences)

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: SequencePlan
    ) -> Tensor:
        """Write, then attend sequence by sequence; the outputs join in the order of the batch."""
        self._pool.write(layer, k, v, plan.slots)
        return torch.cat([self._attend(layer, q[s.rows], spec, s) for s in plan.sequences])

    def _attend(
        self, layer: int, q: Tensor, spec: AttentionSpec, planned: PlannedSequence
    ) -> Tensor:
        """Keys behind the last one are cut off, not masked."""
        keys, values = (x[:, : planned.num_keys] for x in self._pool.gather(layer, planned.table))
        if spec.window not in planned.masks:
            planned.masks[spec.window] = self._ops.causal_mask(
                planned.kv_len, len(q), planned.num_keys, spec.window, q.dtype
            )
        return self._ops.attention(q[None], keys, values, planned.masks[spec.window], spec)[0]
