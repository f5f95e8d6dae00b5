"""Attention of one flat batch over paged keys and values.

A request's block table lists the blocks of its cached prefix, shared with others in the radix tree,
and then its own; attention follows the table and cannot tell them apart (Zheng et al. 2024). Called by
the model in every layer. `naive.py` does it sequence by sequence; it is the oracle.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are attended in one call: n of them with tq queries each.

    rows: [n * tq] int64, their queries in the flat batch; None if they are all of it, in order.
    block_tables: [n, m] int64. kv_lens: [n] int64.
    unused: int64, those of the n * m * block_size gathered slots that hold none of their keys.
    """

    rows: Tensor | None
    num_queries: int
    block_tables: Tensor
    kv_lens: Tensor
    unused: Tensor


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What every layer of a step shares."""

    slot_mapping: Tensor
    groups: list[Group]


class RadixAttention:
    """See `yaie.core.contracts.RadixAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool = pool
        self._ops = ops

    # ANCHOR: plan
    def plan(self, batch: AttentionBatch) -> AttentionPlan:
        """Group the sequences and find each group's blocks, once a step."""
        # BEGIN SOLUTION 5.2
        groups = [self._group(batch, members) for members in groups_of(batch)]
        return AttentionPlan(batch.slot_mapping, groups)
        # END SOLUTION

    def _group(self, batch: AttentionBatch, members: list[int]) -> Group:
        """Index tensors for sequences `members`, all with the same number of queries."""
        # BEGIN SOLUTION 5.2
        device = batch.block_tables.device
        size = self._pool.block_size
        index = torch.tensor(members, device=device)
        num_queries = batch.query_lens[members[0]]
        kv_lens = batch.seq_lens[index].long()
        num_blocks = -(-max(batch.kv_lens[i] for i in members) // size)
        used = torch.arange(num_blocks * size, device=device) < kv_lens[:, None]
        starts = batch.query_start_loc[index].long()
        rows = (starts[:, None] + torch.arange(num_queries, device=device)).flatten()
        is_whole_batch = members == list(range(len(batch.query_lens)))
        return Group(
            rows=None if is_whole_batch else rows,
            num_queries=num_queries,
            block_tables=batch.block_tables[index, :num_blocks].long(),
            kv_lens=kv_lens,
            unused=(~used).flatten().nonzero().flatten(),
        )
        # END SOLUTION

    # ANCHOR_END: plan

    # ANCHOR: run
    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: AttentionPlan
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        New keys go to the pool first: a chunk attends to itself through the same table as to what came
        before, and a request may share blocks that another one computes in this very step.
        """
        # BEGIN SOLUTION 5.3
        self._pool.write(layer, k, v, plan.slot_mapping)
        out = torch.empty_like(q)
        for group in plan.groups:
            queries = q if group.rows is None else q.index_select(0, group.rows)
            attended = self._attend(layer, queries, spec, group).flatten(0, 1)
            if group.rows is None:
                return attended
            out.index_copy_(0, group.rows, attended)
        return out
        # END SOLUTION

    def _attend(self, layer: int, queries: Tensor, spec: AttentionSpec, group: Group) -> Tensor:
        """Gather a group's keys and values and attend: [n * tq, heads, d] -> [n, tq, heads, d]."""
        # BEGIN SOLUTION 5.3
        keys, values = self._pool.gather(layer, group.block_tables)
        for gathered in (keys, values):
            # Unused slots hold what the last owner left, perhaps NaN, and 0 * NaN is NaN.
            gathered.flatten(0, 1).index_fill_(0, group.unused, 0)
        queries = queries.unflatten(0, (-1, group.num_queries))
        return self._ops.attention(queries, keys, values, spec, group.kv_lens)
        # END SOLUTION

    # ANCHOR_END: run
