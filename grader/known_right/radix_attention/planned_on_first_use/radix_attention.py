"""A plan that works out its groups when the first layer asks for them.

Different from the reference: a plan is a tuple of named tuples, made late; ranges of numbers come from a
cache with a bound; unused slots are a mask of booleans; outputs are joined and put back in their order.
"""

from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of


class Members(NamedTuple):
    """Of one group. rows: [n * tq]. table: [n, m]. kv_lens: [n]. is_unused: [n, m * size, 1, 1]."""

    rows: Tensor
    num_queries: int
    table: Tensor
    kv_lens: Tensor
    is_unused: Tensor


@lru_cache(maxsize=64)
def numbers(count: int, device: torch.device) -> Tensor:
    """0 to count - 1; not to be written to."""
    return torch.arange(count, device=device)


class LatePlan:
    """Of one batch. masks: by group and window."""

    def __init__(self, batch: AttentionBatch, block_size: int) -> None:
        self.slots = batch.slot_mapping
        self.masks: dict[tuple[int, int | None], Tensor] = {}
        self._batch = batch
        self._size = block_size

    @cached_property
    def groups(self) -> tuple[Members, ...]:
        """Made once, in the first layer."""
        return tuple(self._members(tuple(members)) for members in groups_of(self._batch))

    @cached_property
    def back(self) -> Tensor:
        """Where each row of the batch is among those of all groups."""
        return torch.argsort(torch.cat([group.rows for group in self.groups]))

    def _members(self, members: tuple[int, ...]) -> Members:
        batch, device = self._batch, self._batch.block_tables.device
        index = torch.tensor(members, device=device)
        num_queries = batch.query_lens[members[0]]
        width = max((batch.kv_lens[i] - 1) // self._size for i in members) + 1
        kv_lens = batch.seq_lens[index].long()
        starts = batch.query_start_loc[index].long()
        slots = numbers(width * self._size, device)
        return Members(
            rows=(starts[:, None] + numbers(num_queries, device)).flatten(),
            num_queries=num_queries,
            table=batch.block_tables[index, :width].long(),
            kv_lens=kv_lens,
            is_unused=(slots >= kv_lens[:, None])[..., None, None],
        )


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool = pool
        self._ops = ops

    def plan(self, batch: AttentionBatch) -> LatePlan:
        """Nothing is worked out yet."""
        return LatePlan(batch, self._pool.block_size)

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: LatePlan
    ) -> Tensor:
        """Write, attend group by group, join."""
        self._pool.write(layer, k, v, plan.slots)
        outputs = [self._attend(layer, q, spec, plan, i) for i in range(len(plan.groups))]
        return torch.cat(outputs)[plan.back]

    def _attend(
        self, layer: int, q: Tensor, spec: AttentionSpec, plan: LatePlan, number: int
    ) -> Tensor:
        group = plan.groups[number]
        keys, values = self._pool.gather(layer, group.table)
        keys, values = (x.masked_fill(group.is_unused, 0) for x in (keys, values))
        key = (number, spec.window)
        if key not in plan.masks:
            plan.masks[key] = self._ops.causal_mask(
                group.kv_lens, group.num_queries, keys.shape[1], spec.window, q.dtype
            )
        queries = q[group.rows].unflatten(0, (-1, group.num_queries))
        return self._ops.attention(queries, keys, values, plan.masks[key], spec).flatten(0, 1)
