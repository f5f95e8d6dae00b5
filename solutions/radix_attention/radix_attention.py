"""Attention of one flat batch over paged keys and values.

A request's block table lists the blocks of its cached prefix, shared with others in the radix tree,
and then its own; attention follows the table and does not distinguish them (Zheng et al. 2024).
Called by the model in every layer. `solutions/radix_attention/naive.py` does it sequence by sequence:
the oracle.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of

Masks = dict[int | None, Tensor]


# ANCHOR: group
@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are attended in one call: n of them with tq queries each.

    rows: where their queries are in the flat batch: [n * tq] int64, or a slice where they are
        neighbours.
    block_tables: [n, m] int64. kv_lens: [n] int64.
    unused: int64, those of the n * m * block_size gathered slots that hold none of their keys.
    masks: by window, what layers with that window add to the scores; filled as layers ask.
    """

    rows: Tensor | slice
    num_queries: int
    block_tables: Tensor
    kv_lens: Tensor
    unused: Tensor
    masks: Masks


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What every layer of a step shares."""

    slot_mapping: Tensor
    groups: list[Group]


# ANCHOR_END: group


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

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
        first, last = members[0], members[-1]
        neighbours = members == list(range(first, last + 1))
        index = slice(first, last + 1) if neighbours else torch.tensor(members, device=device)
        lens = [batch.kv_lens[i] for i in members]
        size = self._pool.block_size
        num_blocks = -(-max(lens) // size)
        kv_lens = batch.seq_lens[index].long()
        return Group(
            rows=self._rows(batch, members, index),
            num_queries=batch.query_lens[first],
            block_tables=batch.block_tables[index, :num_blocks].long(),
            kv_lens=kv_lens,
            unused=self._unused(kv_lens, min(lens), num_blocks * size),
            masks={},
        )
        # END SOLUTION

    def _rows(
        self, batch: AttentionBatch, members: list[int], index: Tensor | slice
    ) -> Tensor | slice:
        """Where the queries of `members`, the sequences at `index`, are in the flat batch."""
        # BEGIN SOLUTION 5.2
        num_queries = batch.query_lens[members[0]]
        if isinstance(index, slice):
            start = sum(batch.query_lens[: index.start])
            return slice(start, start + len(members) * num_queries)
        starts = batch.query_start_loc[index].long()
        offsets = torch.arange(num_queries, device=index.device)
        return (starts[:, None] + offsets).flatten()
        # END SOLUTION

    def _unused(self, kv_lens: Tensor, shortest: int, width: int) -> Tensor:
        """Of n rows of `width` slots, those behind each row's keys. None is before `shortest`."""
        # BEGIN SOLUTION 5.2
        columns = torch.arange(shortest, width, device=kv_lens.device)
        rows = torch.arange(len(kv_lens), device=kv_lens.device)[:, None]
        return (rows * width + columns)[columns >= kv_lens[:, None]]
        # END SOLUTION

    # ANCHOR_END: plan

    # ANCHOR: run
    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: AttentionPlan
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        New keys go to the pool first: a chunk attends to itself through the same table as to what came
        before it.
        """
        # BEGIN SOLUTION 5.3
        self._pool.write(layer, k, v, plan.slot_mapping)
        out = torch.empty_like(q)
        for group in plan.groups:
            out[group.rows] = self._attend(layer, q[group.rows], spec, group)
        return out
        # END SOLUTION

    def _attend(self, layer: int, queries: Tensor, spec: AttentionSpec, group: Group) -> Tensor:
        """Gather a group's keys and values and attend, for queries [n * tq, heads, d]."""
        # BEGIN SOLUTION 5.3
        keys, values = self._pool.gather(layer, group.block_tables)
        for gathered in (keys, values):
            # Unused slots hold what the last owner left, perhaps NaN, and 0 * NaN is NaN.
            gathered.flatten(0, 1).index_fill_(0, group.unused, 0)
        queries = queries.unflatten(0, (-1, group.num_queries))
        mask = self._mask(group, keys.shape[1], spec.window, queries.dtype)
        return self._ops.attention(queries, keys, values, mask, spec).flatten(0, 1)
        # END SOLUTION

    def _mask(self, group: Group, tk: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """The group's mask for layers with this window, made by the first of them."""
        # BEGIN SOLUTION 5.3
        if window not in group.masks:
            group.masks[window] = self._ops.causal_mask(
                group.kv_lens, group.num_queries, tk, window, dtype
            )
        return group.masks[window]
        # END SOLUTION

    # ANCHOR_END: run
