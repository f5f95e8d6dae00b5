"""Attention of a flat batch by the library: over block tables as they are, shared prefixes read once."""

from ctypes import byref
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from yaie.backends.cpu.library import EVERYTHING, Attend, Library, RotateAndStore
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import KVPool

Blocks = tuple[Tensor, Tensor]
"""Keys and values of a layer, as `KVPool.blocks` has them."""


@dataclass(slots=True)
class CpuPlan:
    """What the layers of a step share. Its tensors are those that the library's plans point into.

    made: the library's plan for each (query heads of a key head, whether prefixes are shared).
    """

    batch: AttentionBatch
    starts: Tensor
    lens: Tensor
    tables: Tensor
    library: Library
    made: dict[tuple[int, bool], int] = field(default_factory=dict)

    def plan(self, group: int, shares: bool, block_size: int) -> int:
        """The library's, made when it is first needed."""
        if (group, shares) not in self.made:
            self.made[group, shares] = self.library.make_plan(
                self.starts.data_ptr(), self.lens.data_ptr(), self.tables.data_ptr(),
                self.tables.stride(0), len(self.lens), block_size, group, shares,
            )  # fmt: skip
        return self.made[group, shares]

    def __del__(self) -> None:
        for plan in self.made.values():
            self.library.free_plan(plan)


class CpuAttention:
    """See `yaie.core.contracts.BatchAttention`; `run` also takes the rotation along (see `Attend`)."""

    def __init__(
        self, pool: KVPool, library: Library, *, rotates: bool = True, stores: bool = True
    ) -> None:
        """rotates, stores: False where a learner's part does it."""
        self._pool = pool
        self._library = library
        self.takes_rotation = rotates
        self._stores = stores

    def plan(self, batch: AttentionBatch) -> CpuPlan:
        """Nothing is gathered; what is shared is found when the first layer runs."""
        tables = batch.block_tables.int()
        return CpuPlan(
            batch,
            batch.query_start_loc.int().contiguous(),
            batch.seq_lens.int().contiguous(),
            tables if tables.stride(1) == 1 else tables.contiguous(),
            self._library,
        )

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: CpuPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        q may be rotated in place: it is a product that nobody else reads.
        """
        if rotation is not None and rotation.norms is not None:
            q, k = rotation.norms.apply(q, k)
            rotation = replace(rotation, norms=None)
        q, k, v = _heads_in_one_piece(q), _heads_in_one_piece(k), _heads_in_one_piece(v)
        blocks = self._pool.blocks(layer)
        if self._stores:
            self._store(blocks, q, k, v, plan, rotation)
        else:
            if rotation is not None:
                rotated, k = rotation.apply(q, k)
                q.copy_(rotated)
            self._pool.write(layer, k, v, plan.batch.slot_mapping)
        return self._attend(blocks, q, spec, plan)

    def _store(
        self, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor, plan: CpuPlan,
        rotation: Rotation | None,
    ) -> None:  # fmt: skip
        slots, (keys, values) = plan.batch.slot_mapping, blocks
        cos = sin = positions = None
        if rotation is not None:
            positions, cos, sin = rotation.positions, rotation.cos, rotation.sin
        call = RotateAndStore(
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), k.data_ptr(), v.data_ptr(),
            slots.data_ptr(), *(None if x is None else x.data_ptr() for x in (positions, cos, sin)),
            *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *keys.stride()[:3],
            len(q), q.shape[1], k.shape[1], q.shape[2], 0 if cos is None else cos.shape[1],
            keys.shape[1], q.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        self._library.rotate_and_store(byref(call))

    def _attend(self, blocks: Blocks, q: Tensor, spec: AttentionSpec, plan: CpuPlan) -> Tensor:
        keys, values = blocks
        heads, kv_heads = q.shape[1], keys.shape[2]
        sinks = None if spec.sinks is None else spec.sinks.float().contiguous()
        out = torch.empty(q.shape, dtype=q.dtype)
        call = Attend(
            q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(),
            None if sinks is None else sinks.data_ptr(),
            *q.stride()[:2], *keys.stride()[:3],
            EVERYTHING if spec.window is None else spec.window,
            spec.scale, spec.softcap or 0.0,
            heads, kv_heads, q.shape[2], q.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        # Behind a window the beginning of a table is not read at all.
        made = plan.plan(heads // kv_heads, spec.window is None, keys.shape[1])
        self._library.attend(made, byref(call))
        return out


def _heads_in_one_piece(x: Tensor) -> Tensor:
    """[T, heads, d] with each head's numbers side by side."""
    return x if x.stride(2) == 1 else x.contiguous()
