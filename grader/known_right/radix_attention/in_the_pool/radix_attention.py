"""Another right attention: keys are read by slot from the pool's own memory; `gather` is never called.

A plan holds the slot of every key of every sequence; a slot without a key is its sequence's first one,
so that nothing has to be cleaned. New keys are written there too, through `blocks`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from . import grouping


class Together(NamedTuple):
    """start, stop: where the queries stand when the batch is in the order of the plan."""

    start: int
    stop: int
    num_queries: int
    blocks: Tensor
    offsets: Tensor
    lens: Tensor
    masks: dict[int | None, Tensor]


class Plan(NamedTuple):
    """order: rows of the flat batch as the groups want them. back: where each row went."""

    write_blocks: Tensor
    write_offsets: Tensor
    order: Tensor
    back: Tensor
    groups: tuple[Together, ...]


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    __slots__ = ("_ops", "_pool")

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool, self._ops = pool, ops

    def plan(self, batch: AttentionBatch) -> Plan:
        """One order of rows for the whole step, in which every group is a slice."""
        size, device = self._pool.block_size, batch.block_tables.device
        starts = [0]
        for count in batch.query_lens:
            starts.append(starts[-1] + count)
        rows: list[int] = []
        groups = []
        for members in grouping.groups_of(batch):
            before = len(rows)
            for i in members:
                rows += range(starts[i], starts[i + 1])
            lens = torch.tensor([batch.kv_lens[i] for i in members], device=device)
            places = torch.arange(int(lens.max()), device=device).repeat(len(members), 1)
            places = places.where(places < lens[:, None], torch.zeros_like(places))
            index = torch.tensor(members, device=device)[:, None]
            blocks = batch.block_tables[index, places // size].long()
            groups.append(
                Together(
                    start=before,
                    stop=len(rows),
                    num_queries=batch.query_lens[members[0]],
                    blocks=blocks,
                    offsets=places % size,
                    lens=lens,
                    masks={},
                )
            )
        order = torch.tensor(rows, device=device, dtype=torch.int64)
        slots = batch.slot_mapping
        return Plan(slots // size, slots % size, order, order.argsort(), tuple(groups))

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: Plan
    ) -> Tensor:
        """Write, put the queries in the plan's order, attend slice by slice, put back."""
        keys, values = self._pool.blocks(layer)
        keys[plan.write_blocks, plan.write_offsets] = k
        values[plan.write_blocks, plan.write_offsets] = v
        ordered, pieces = q[plan.order], []
        for group in plan.groups:
            queries = ordered[group.start : group.stop].unflatten(0, (-1, group.num_queries))
            at = group.blocks, group.offsets
            if spec.window not in group.masks:
                group.masks[spec.window] = self._ops.causal_mask(
                    group.lens, group.num_queries, at[0].shape[1], spec.window, q.dtype
                )
            mask = group.masks[spec.window]
            pieces.append(
                self._ops.attention(queries, keys[at], values[at], mask, spec).flatten(0, 1)
            )
        return torch.cat(pieces)[plan.back]
