# Lab 5, your part: tasks 5.2, 5.3. The rest is given.
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
        # TODO 5.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "radix_attention task 5.2: not implemented yet; see chapter Radix attention"
        )

    def _group(self, batch: AttentionBatch, members: list[int]) -> Group:
        """Index tensors for sequences `members`, all with the same number of queries."""
        # TODO 5.2: your code here (the reference: 16 lines).
        raise NotImplementedError(
            "radix_attention task 5.2: not implemented yet; see chapter Radix attention"
        )

    def _rows(
        self, batch: AttentionBatch, members: list[int], index: Tensor | slice
    ) -> Tensor | slice:
        """Where the queries of `members`, the sequences at `index`, are in the flat batch."""
        # TODO 5.2: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "radix_attention task 5.2: not implemented yet; see chapter Radix attention"
        )

    def _unused(self, kv_lens: Tensor, shortest: int, width: int) -> Tensor:
        """Of n rows of `width` slots, those behind each row's keys. None is before `shortest`."""
        # TODO 5.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "radix_attention task 5.2: not implemented yet; see chapter Radix attention"
        )

    # ANCHOR_END: plan

    # ANCHOR: run
    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: AttentionPlan
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        New keys go to the pool first: a chunk attends to itself through the same table as to what came
        before it.
        """
        # TODO 5.3: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "radix_attention task 5.3: not implemented yet; see chapter Radix attention"
        )

    def _attend(self, layer: int, queries: Tensor, spec: AttentionSpec, group: Group) -> Tensor:
        """Gather a group's keys and values and attend, for queries [n * tq, heads, d]."""
        # TODO 5.3: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "radix_attention task 5.3: not implemented yet; see chapter Radix attention"
        )

    def _mask(self, group: Group, tk: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """The group's mask for layers with this window, made by the first of them."""
        # TODO 5.3: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "radix_attention task 5.3: not implemented yet; see chapter Radix attention"
        )

    # ANCHOR_END: run
