"""Radix attention as one call: all keys of the batch in a row, and a mask that tells whose they are.

Different from the reference: slots are gathered, not blocks, so that there is no padding at all; the
masks are made here and not by the operations; the plan holds positions and owners. It computes each
query against every sequence's keys, which is wasteful, and right.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps


@dataclass(slots=True)
class FlatPlan:
    """T queries and S keys, sequence after sequence.

    new_slots: [T]. key_slots: [S]. visible: [T, S], by position and owner. distance: [T, S], how many
    positions a key lies before a query. masks: [1, T, S], by window.
    """

    new_slots: Tensor
    key_slots: Tensor
    visible: Tensor
    distance: Tensor
    masks: dict[int | None, Tensor] = field(default_factory=dict)


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool = pool
        self._ops = ops

    def plan(self, batch: AttentionBatch) -> FlatPlan:
        """Number all queries and keys of the batch, with their owners and positions."""
        device, size = batch.block_tables.device, self._pool.block_size
        numbers = torch.arange(len(batch.kv_lens), device=device)
        query_lens = batch.query_start_loc.diff().long()
        query_owner = numbers.repeat_interleave(query_lens)
        key_owner = numbers.repeat_interleave(batch.seq_lens.long())
        key_position = torch.cat([torch.arange(n, device=device) for n in batch.kv_lens])
        blocks = batch.block_tables.long()[key_owner, key_position // size]
        distance = batch.positions[:, None] - key_position
        return FlatPlan(
            new_slots=batch.slot_mapping,
            key_slots=blocks * size + key_position % size,
            visible=(query_owner[:, None] == key_owner) & (distance >= 0),
            distance=distance,
        )

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: FlatPlan
    ) -> Tensor:
        """Write, pick every key's slot, attend in one call with a batch size of 1."""
        self._pool.write(layer, k, v, plan.new_slots)
        keys, values = (x.flatten(0, 1)[plan.key_slots][None] for x in self._pool.blocks(layer))
        return self._ops.attention(q[None], keys, values, self._mask(plan, spec, q.dtype), spec)[0]

    def _mask(self, plan: FlatPlan, spec: AttentionSpec, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key of its own sequence, else -inf."""
        if spec.window not in plan.masks:
            visible = plan.visible
            if spec.window is not None:
                visible = visible & (plan.distance < spec.window)
            hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
            plan.masks[spec.window] = hidden.masked_fill(~visible, float("-inf"))[None]
        return plan.masks[spec.window]
