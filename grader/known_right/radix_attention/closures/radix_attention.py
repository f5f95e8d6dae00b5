"""Another right attention: a plan is a function, made of one function for each group.

Everything that a group needs is bound where it is planned, so that there is no class for plans or
groups. Masks are made when the function is first called with a window. Slots are cleaned by
multiplication-free selection, and the tables stay int32.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of

Attend = Callable[[int, Tensor, AttentionSpec, Tensor], None]
Run = Callable[[int, Tensor, Tensor, Tensor, AttentionSpec], Tensor]


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        def plan(batch: AttentionBatch) -> Run:
            slots = batch.slot_mapping
            steps = [_attend(pool, ops, batch, list(some)) for some in groups_of(batch)]

            def run(layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
                pool.write(layer, k, v, slots)
                out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
                for step in steps:
                    step(layer, q, spec, out)
                return out

            return run

        self.plan = plan

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: Run
    ) -> Tensor:
        """The plan knows how."""
        return plan(layer, q, k, v, spec)


def _attend(pool: KVPool, ops: TransformerOps, batch: AttentionBatch, members: list[int]) -> Attend:
    """Attention of the batch's sequences `members`, which writes into its last argument."""
    device = batch.block_tables.device
    members = sorted(members)  # as in the batch, where the others are in order of length
    index = torch.tensor(members, device=device)
    tq, longest = batch.query_lens[members[0]], max(batch.kv_lens[i] for i in members)
    width = -(-longest // pool.block_size)
    table, lens = batch.block_tables[index, :width], batch.seq_lens[index]
    rows = batch.query_start_loc[index, None] + torch.arange(tq, device=device)
    keep = (torch.arange(width * pool.block_size, device=device) < lens[:, None])[..., None, None]

    @cache
    def mask_of(window: int | None, dtype: torch.dtype) -> Tensor:
        return ops.causal_mask(lens.long(), tq, width * pool.block_size, window, dtype)

    def attend(layer: int, q: Tensor, spec: AttentionSpec, out: Tensor) -> None:
        keys, values = (x.where(keep, x.new_zeros(())) for x in pool.gather(layer, table))
        out[rows] = ops.attention(q[rows], keys, values, mask_of(spec.window, q.dtype), spec)

    return attend
