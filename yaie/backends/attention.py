"""Attention of a flat batch by kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from yaie.backends.attention_plan import Chunks, Gathered, KernelPlan, Prompts, plan_calls
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import KVPool
from yaie.core.contracts.kernels import FlashAttention, PagedAttention, StoreKernel


class RotateAndStore:
    """What happens to a layer's queries, keys and values before attention, in as few launches as the
    kernels allow."""

    def __init__(
        self,
        store: StoreKernel,
        rope_and_store: Callable[..., None] | None = None,
        norm_rope_store: Callable[..., None] | None = None,
    ) -> None:
        """rope_and_store: of LayerKernels; without it the rotation is applied first. norm_rope_store:
        of `fused`; without it norms are applied first."""
        self._store_kv = store.store_kv
        self._rope_and_store = rope_and_store
        self._norm_rope_store = norm_rope_store

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
        rotation: Rotation | None,
        keep_k: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Rotate, and store k and v [T, kv_heads, d] in the slots [T] of the pool's blocks; q and k as
        attention needs them. keep_k: whether it reads k itself."""
        if rotation is not None and rotation.norms is not None:
            if self._norm_rope_store is not None and 2 * rotation.cos.shape[1] == q.shape[2]:
                self._norm_rope_store(q, k, v, rotation, keys, values, slots, keep_k)
                return q, k
            q, k = rotation.norms.apply(q, k)
            rotation = replace(rotation, norms=None)
        if rotation is not None and self._rope_and_store is not None and not keep_k:
            tables = (rotation.positions, rotation.cos, rotation.sin)
            self._rope_and_store(q, k, v, *tables, keys, values, slots)
            return q, k
        if rotation is not None:
            q, k = rotation.apply(q, k)
        self._store_kv(k, v, keys, values, slots)
        return q, k


class KernelAttention:
    """See `yaie.core.contracts.BatchAttention`; `run` also takes the rotation along (see `Attend`)."""

    takes_rotation = True

    def __init__(
        self,
        pool: KVPool,
        store: RotateAndStore,
        flash: FlashAttention,
        paged: PagedAttention,
        gather: Callable[[Tensor, Tensor], Tensor] | None = None,
        worth_a_call: int = 0,
        few_queries: Any = None,
    ) -> None:
        """gather: of MemoryKernels, if long chunks are to be gathered. worth_a_call: see `plan_calls`.
        few_queries: the module, if its kernels are to attend with small chunks."""
        self._pool = pool
        self._store = store
        self._flash = flash
        self._paged = paged
        self._gather = gather
        self._few_queries = few_queries
        self._worth_a_call = worth_a_call

    def plan(self, batch: AttentionBatch) -> KernelPlan:
        """Which kernel computes which sequences: see `calls`."""
        gathers = self._gather is not None
        return plan_calls(batch, self._pool.block_size, gathers, self._worth_a_call)

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: KernelPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d]."""
        keys, values = self._pool.blocks(layer)
        q, k, v = rows_in_one_piece(q), rows_in_one_piece(k), rows_in_one_piece(v)
        calls, keep_k = plan.calls, plan.has_prompts
        if spec.softcap is not None or spec.sinks is not None:
            calls, keep_k = [plan.rest] if plan.rest else [], False
        q, k = self._store(q, k, v, keys, values, plan.slot_mapping, rotation, keep_k)
        outputs = [self._decode(q, keys, values, spec, plan)] if plan.decodes else []
        for call in calls:
            if isinstance(call, Chunks):
                outputs.append(self._prefill(q, keys, values, spec, call))
            elif isinstance(call, Gathered):
                outputs.append(self._gathered(q, keys, values, spec, call))
            else:
                outputs.append(self._whole(q, k, v, spec, call))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _decode(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, plan: KernelPlan
    ) -> Tensor:
        """[decodes, heads, d]: the last query of each sequence."""
        tables, lens = plan.block_tables, plan.seq_lens
        return self._paged.decode(
            q[: plan.decodes], keys, values, tables, lens, spec, max_seq_len=plan.longest
        )

    def _prefill(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, chunks: Chunks
    ) -> Tensor:
        """[rows of the chunks, heads, d]: new tokens attend to what is cached and to each other."""
        queries = q[chunks.start : chunks.end]
        if self._few_queries is not None and self._few_queries.takes(queries, chunks, spec):
            attended: Tensor = self._few_queries.attend(queries, keys, values, chunks, spec)
            return attended
        return self._paged.prefill(
            queries,
            keys,
            values,
            chunks.block_tables,
            chunks.query_start_loc,
            chunks.seq_lens,
            spec,
            max_query_len=chunks.max_query_len,
        )

    def _gathered(
        self, q: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec, one: Gathered
    ) -> Tensor:
        """[rows of the chunk, heads, d]: its queries are the last of its keys."""
        assert self._gather is not None
        k, v = (self._gather(blocks, one.table)[:, : one.length] for blocks in (keys, values))
        queries = q[None, one.start : one.end]
        out, _ = self._flash.forward(
            queries, k, v, scale=spec.scale, causal=True, window=spec.window
        )
        return out[0]

    def _whole(
        self, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, group: Prompts
    ) -> Tensor:
        """[rows of the group, heads, d]: each prompt attends to itself."""
        q, k, v = (x[group.start : group.end].unflatten(0, (-1, group.length)) for x in (q, k, v))
        out, _ = self._flash.forward(q, k, v, scale=spec.scale, causal=True, window=spec.window)
        return out.flatten(0, 1)


def rows_in_one_piece(x: Tensor) -> Tensor:
    """[T, heads, d] as kernels take it: each token's heads side by side. Models of transformers hand
    over [heads, T, d], seen from the side."""
    heads, d = x.shape[1:]
    return x if x.stride(2) == 1 and (x.stride(1) == d or heads == 1) else x.contiguous()
