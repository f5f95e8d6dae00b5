"""A worker of a model of which some layers see a window and others all of a text.

Each of the two groups of layers has a KV pool of its own, and each seat two block tables: that of the
windowed group stands behind that of the full one, in the same row. So what steps bring of tables, and
what is recorded of them, is as for any model: an entry behind the `max_blocks` of a table is of the
windowed group. Blocks to be copied that are numbered behind the full pool's are of the windowed pool.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import BatchAttention, KVPool
from yaie.core.step import StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import attend_through, lay_out
from yaie.worker.transfer import on_device
from yaie.worker.worker import Worker

Pairs = Sequence[tuple[int, int]]


class GroupedPool:
    """See `yaie.core.contracts.KVPool`. Blocks and slots are those of the full pool, but where a layer
    is named: then they are of the layer's pool."""

    def __init__(
        self, full: KVPool, windowed: KVPool, places: Sequence[tuple[KVPool, int]]
    ) -> None:
        """places: of each layer of the model, its pool, and its index there."""
        self.num_blocks, self.block_size = full.num_blocks, full.block_size
        self.full = full
        self.windowed = windowed
        self._places = places

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        return self.full.slot_mapping(block_tables, rows, positions)

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        pool, index = self._places[layer]
        pool.write(index, k, v, slot_mapping)

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        pool, index = self._places[layer]
        return pool.gather(index, block_tables)

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        pool, index = self._places[layer]
        return pool.blocks(index)

    def copy_blocks(self, pairs: Pairs) -> None:
        """See the contract. Windowed blocks are numbered behind the full ones."""
        border = self.num_blocks
        for pool, first in ((self.full, 0), (self.windowed, border)):
            own = [
                (here - first, there - first)
                for here, there in pairs
                if (here >= border) == (first > 0)
            ]
            if own:
                pool.copy_blocks(own)

    def swap_out(self, pairs: Pairs) -> None:
        self._never(pairs)

    def swap_in(self, pairs: Pairs) -> None:
        self._never(pairs)

    def _never(self, pairs: Pairs) -> None:
        raise NotImplementedError(f"with two groups of layers no block is swapped: {pairs}")


class GroupedPlan(NamedTuple):
    """Of the layers that see all of a text, and of the others."""

    full: Any
    windowed: Any


class GroupedAttention:
    """See `yaie.core.contracts.BatchAttention`. Plans twice for a batch whose tables have both parts
    side by side, equally wide."""

    def __init__(
        self,
        full: BatchAttention,
        windowed: BatchAttention,
        windowed_pool: KVPool,
        indices: Sequence[tuple[bool, int]],
    ) -> None:
        """indices: of each layer of the model, whether it has a window, and its index in its pool."""
        self.takes_rotation = all(
            getattr(part, "takes_rotation", False) for part in (full, windowed)
        )
        self._parts = (full, windowed)
        self._pool = windowed_pool
        self._indices = indices

    def plan(self, batch: AttentionBatch) -> GroupedPlan:
        """See the contract."""
        width = batch.block_tables.shape[1] // 2
        tables = batch.block_tables[:, width:]
        slots = self._pool.slot_mapping(tables, sequences(batch), batch.positions)
        # Rows of padding store nothing.
        slots = torch.where(batch.slot_mapping < 0, batch.slot_mapping, slots)
        full, windowed = self._parts
        return GroupedPlan(
            full.plan(replace(batch, block_tables=batch.block_tables[:, :width])),
            windowed.plan(replace(batch, block_tables=tables, slot_mapping=slots)),
        )

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: GroupedPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """See the contract."""
        has_window, index = self._indices[layer]
        part: Any = self._parts[has_window]
        if rotation is None:
            return part.run(index, q, k, v, spec, plan[has_window])
        return part.run(index, q, k, v, spec, plan[has_window], rotation)


def sequences(batch: AttentionBatch) -> Tensor:
    """[T] int64: to which sequence each row of a batch belongs; of padding behind the last one, to that.
    The host reads no value."""
    begins, rows = batch.query_start_loc, len(batch.positions)
    places = torch.arange(rows, dtype=begins.dtype, device=begins.device)
    ends = begins[1:].contiguous()
    return torch.searchsorted(ends, places, right=True).clamp_(max=len(ends) - 1)


class GroupedWorker(Worker):
    """See Worker, and this module."""

    pool: GroupedPool

    def __init__(self, adapter: ModelAdapter, *parts: Any, num_seats: int, **settings: Any) -> None:
        super().__init__(adapter, *parts, num_seats=num_seats, **settings)
        self.width = self.batch.tables.shape[1]
        self.first_columns = (0, self.width)
        self.batch = InputBatch(num_seats, 2 * self.width, adapter.vocab_size, self.device)

    def forward(self, step: StepInput) -> Tensor:
        """See Worker."""
        self.batch.extend_tables(step)
        token_ids, batch = lay_out(step, self.batch, self.pool)
        seats = on_device(step.seats, self.device).long()
        width = batch.block_tables.shape[1]
        behind = self.batch.tables[:, self.width : self.width + width].index_select(0, seats)
        batch = replace(batch, block_tables=torch.cat([batch.block_tables, behind], dim=1))
        plan = self.attention.plan(batch)
        self.before_forward()
        return self.adapter.forward(
            token_ids, batch.positions, attend_through(self.attention, plan)
        )


def grouped(
    full: Sequence[int],
    windowed: Sequence[int],
    of_full: tuple[KVPool, BatchAttention],
    of_windowed: tuple[KVPool, BatchAttention],
) -> tuple[GroupedPool, GroupedAttention]:
    """One pool and one attention for all layers, of those of each group. full, windowed: the layers."""
    pools, attentions = (of_full[0], of_windowed[0]), (of_full[1], of_windowed[1])
    indices = {layer: (False, index) for index, layer in enumerate(full)}
    indices |= {layer: (True, index) for index, layer in enumerate(windowed)}
    order = [indices[layer] for layer in range(len(indices))]
    places = [(pools[has_window], index) for has_window, index in order]
    return GroupedPool(*pools, places), GroupedAttention(*attentions, pools[1], order)
