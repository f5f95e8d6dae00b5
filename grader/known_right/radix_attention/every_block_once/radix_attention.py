"""Another right attention: a step gathers each block that it reads once, whichever sequences share it.

The blocks of all groups are made unique in the plan; a layer gathers them as one table of one row, and
the groups pick theirs from what came. The mask is kept as the plan's, for the whole batch of groups.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of


class Step:
    """What the layers share. table: [1, blocks] int32, each once."""

    def __init__(self, batch: AttentionBatch, size: int) -> None:
        self.slots = batch.slot_mapping
        self.masks: dict[tuple[int, int | None], Tensor] = {}
        self.groups = [_Sequences(batch, members, size) for members in groups_of(batch)]
        used = [group.table.flatten() for group in self.groups]
        unique, where = torch.cat(used).unique(return_inverse=True)
        self.table = unique[None].int()
        for group, places in zip(
            self.groups, where.split([len(each) for each in used]), strict=True
        ):
            group.places = places.view_as(group.table)


class _Sequences:
    """places: of each of `table`'s blocks among those that are gathered."""

    places: Tensor

    def __init__(self, batch: AttentionBatch, members: list[int], size: int) -> None:
        lens = [batch.kv_lens[i] for i in members]
        index = torch.tensor(members, device=batch.block_tables.device)
        self.tq = batch.query_lens[members[0]]
        self.lens = batch.seq_lens.index_select(0, index).long()
        self.table = batch.block_tables.index_select(0, index)[:, : (max(lens) + size - 1) // size]
        first = batch.query_start_loc[:-1].index_select(0, index).long()
        self.rows = first[:, None] + torch.arange(self.tq, device=index.device)
        slots = torch.arange(self.table.shape[1] * size, device=index.device)
        self.empty = (slots >= self.lens[:, None])[..., None, None]


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool = pool
        self._ops = ops

    def plan(self, batch: AttentionBatch) -> Step:
        """Everything but the masks."""
        return Step(batch, self._pool.block_size)

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: Step
    ) -> Tensor:
        """One write, one gather, and a call for each group."""
        self._pool.write(layer, k, v, plan.slots)
        size = self._pool.block_size
        stored = [x[0].unflatten(0, (-1, size)) for x in self._pool.gather(layer, plan.table)]
        out = torch.empty_like(q)
        for number, group in enumerate(plan.groups):
            picked = (x[group.places].flatten(1, 2) for x in stored)
            keys, values = (x.masked_fill(group.empty, 0) for x in picked)
            if (number, spec.window) not in plan.masks:
                plan.masks[number, spec.window] = self._ops.causal_mask(
                    group.lens, group.tq, keys.shape[1], spec.window, q.dtype
                )
            mask = plan.masks[number, spec.window]
            out[group.rows] = self._ops.attention(q[group.rows], keys, values, mask, spec)
        return out
