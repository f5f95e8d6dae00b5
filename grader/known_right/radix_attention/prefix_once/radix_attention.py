"""Another right attention: blocks that a whole group shares are attended once, for all of it.

Decodes behind one prompt read its keys once, as a matrix product in place of many rows, and each its own
keys by itself; the two halves are joined by their log-sum-exps (Ye et al. 2024, FlashInfer's cascade).
None of the operations that it is given is called: attention and masks are its own.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of

NEVER = float("-inf")
Half = tuple[Tensor, Tensor]
"""Sums of values [n, heads, tq, d], and the log-sum-exp of the scores [n, heads, tq, 1]."""


@dataclass
class Part:
    """Sequences that are attended together. shared: [1, s], own: [n, m - s], tables."""

    rows: Tensor
    num_queries: int
    shared: Tensor
    own: Tensor
    positions: Tensor
    unused: Tensor
    masks: dict[Any, tuple[Tensor, Tensor]] = field(default_factory=dict)


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self.pool = pool

    def plan(self, batch: AttentionBatch) -> tuple[Tensor, list[Part]]:
        """Slots, and parts with the length of their common prefix."""
        parts = [self._part(batch, torch.tensor(some)) for some in groups_of(batch)]
        return batch.slot_mapping, parts

    def _part(self, batch: AttentionBatch, members: Tensor) -> Part:
        lens = [batch.kv_lens[i] for i in members.tolist()]
        num_queries = batch.query_lens[int(members[0])]
        tables = batch.block_tables.long()[members.to(batch.block_tables.device)]
        tables = tables[:, : -(-max(lens) // self.pool.block_size)]
        common = self._num_common(tables, min(lens) - num_queries)
        starts = batch.query_start_loc.long()[members]
        kv_lens = torch.tensor(lens, device=tables.device)
        offsets = torch.arange(num_queries, device=tables.device)
        behind = common * self.pool.block_size
        width = (tables.shape[1] - common) * self.pool.block_size
        columns = torch.arange(behind, behind + width, device=tables.device)
        return Part(
            rows=(starts[:, None] + offsets).reshape(-1),
            num_queries=num_queries,
            shared=tables[:1, :common],
            own=tables[:, common:],
            positions=(kv_lens - num_queries)[:, None] + offsets,
            unused=columns >= kv_lens[:, None],
        )

    def _num_common(self, tables: Tensor, num_stored: int) -> int:
        """Leading columns that are equal in all rows, of blocks that are full of stored keys."""
        if len(tables) == 1:
            return 0
        columns = tables[:, : max(0, num_stored) // self.pool.block_size]
        equal = (columns == columns[:1]).all(dim=0)
        return int(equal.long().cumprod(0).sum())

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: Any
    ) -> Tensor:
        """Write k and v, then attend part by part."""
        slots, parts = plan
        self.pool.write(layer, k, v, slots)
        out = q.new_zeros(q.shape)
        for part in parts:
            queries = q.index_select(0, part.rows).unflatten(0, (-1, part.num_queries))
            out.index_copy_(0, part.rows, self._attend(layer, queries, spec, part).flatten(0, 1))
        return out

    def _attend(self, layer: int, q: Tensor, spec: AttentionSpec, part: Part) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        queries = q.to(dtype).transpose(1, 2)
        seen_shared, seen_own = self._masks(part, spec.window)
        halves = []
        if part.own.shape[1]:
            keys, values = self.pool.gather(layer, part.own)
            keys[part.unused], values[part.unused] = 0, 0
            halves.append(_half(queries, keys, values, seen_own, spec))
        if part.shared.shape[1]:
            keys, values = self.pool.gather(layer, part.shared)
            halves.append(_half(queries, keys, values, seen_shared, spec))
        if spec.sinks is not None:
            mass = spec.sinks.to(dtype).view(1, -1, 1, 1).expand_as(halves[0][1])
            halves.append((torch.zeros_like(queries), mass))
        return _joined(halves).transpose(1, 2).to(q.dtype)

    def _masks(self, part: Part, window: int | None) -> tuple[Tensor, Tensor]:
        """Booleans [n, 1, tq, keys] of the shared and of the own keys."""
        if window not in part.masks:
            size = self.pool.block_size
            border, end = part.shared.shape[1] * size, part.own.shape[1] * size
            keys = torch.arange(border + end, device=part.positions.device)
            at = part.positions[:, :, None]
            seen = (keys <= at) & (keys > at - (window or len(keys) + 1))
            part.masks[window] = seen[:, None, :, :border], seen[:, None, :, border:]
        return part.masks[window]


def _half(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, spec: AttentionSpec) -> Half:
    """q [n, heads, tq, d] over k, v [n or 1, t, kv_heads, d]."""
    group = q.shape[1] // k.shape[2]
    keys, values = (x.to(q.dtype).transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
    scores = q @ keys.mT * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * (scores / spec.softcap).tanh()
    scores = scores.masked_fill(~seen, NEVER)
    mass = scores.logsumexp(dim=-1, keepdim=True)
    weights = (scores - mass).exp().masked_fill(~seen, 0)  # of no key at all: -inf - -inf
    return weights @ values, mass


def _joined(halves: list[Half]) -> Tensor:
    """Each half by its part of the whole mass."""
    shares = torch.stack([mass for _, mass in halves]).softmax(dim=0)
    return torch.stack([out for out, _ in halves]).mul(shares).sum(dim=0)
