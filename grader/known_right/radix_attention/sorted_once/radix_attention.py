"""Another right attention: plans are dictionaries, and masks do the work of cleaning.

A mask is cut to the longest key length, not to whole blocks, and so are keys and values; what stays
without a key is looked up as an index of rows and columns.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool, TransformerOps

from .grouping import groups_of


class RadixAttention:
    """See `yaie.core.contracts.BatchAttention`."""

    def __init__(self, pool: KVPool, ops: TransformerOps) -> None:
        self._pool, self._ops = pool, ops

    def plan(self, batch: AttentionBatch) -> dict[str, Any]:
        """A list of groups, each again a dictionary."""
        starts = [0, *accumulate(batch.query_lens)]
        return {
            "slots": batch.slot_mapping,
            "groups": [self._group(batch, starts, members) for members in groups_of(batch)],
        }

    def _group(
        self, batch: AttentionBatch, starts: list[int], members: list[int]
    ) -> dict[str, Any]:
        lens = [batch.kv_lens[i] for i in members]
        device, longest = batch.block_tables.device, max(lens)
        rows = [list(range(starts[i], starts[i + 1])) for i in members]
        unused = [(n, at) for n, length in enumerate(lens) for at in range(length, longest)]
        at = torch.tensor(unused, dtype=torch.int64, device=device).reshape(-1, 2)
        width = (longest + self._pool.block_size - 1) // self._pool.block_size
        tables = torch.stack([batch.block_tables[i][:width] for i in members])
        return {
            "rows": torch.tensor(rows, device=device),
            "tables": tables,
            "lens": torch.tensor(lens, device=device),
            "longest": longest,
            "unused": at.unbind(1),
            "mask": {},
        }

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: dict[str, Any]
    ) -> Tensor:
        """Write, then gather and attend for each group."""
        self._pool.write(layer, k, v, plan["slots"])
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for group in plan["groups"]:
            gathered = self._pool.gather(layer, group["tables"])
            keys, values = (x[:, : group["longest"]] for x in gathered)
            keys[group["unused"]] = 0
            values[group["unused"]] = 0
            mask = group["mask"].get(spec.window)
            if mask is None:
                mask = group["mask"][spec.window] = self._ops.causal_mask(
                    group["lens"], group["rows"].shape[1], group["longest"], spec.window, q.dtype
                )
            out[group["rows"]] = self._ops.attention(q[group["rows"]], keys, values, mask, spec)
        return out
