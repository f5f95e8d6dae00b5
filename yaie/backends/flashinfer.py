"""The backend with FlashInfer's attention, and Triton's of all else (Ye et al. 2025).

FlashInfer (https://docs.flashinfer.ai/api/attention.html) plans on the host, once a step: it cuts
sequences of known lengths into pieces of work of one size, and every layer runs by that. A recorded
step, which the next one replays with lengths that only the GPU knows, has no place for a plan. So with
this backend steps are launched kernel by kernel.

    decodes    one query each                  BatchDecodeWithPagedKVCacheWrapper, on tensor cores
    the rest   prompts, and chunks of them     BatchPrefillWithPagedKVCacheWrapper, causal

Both read the pool as it lies, [block, slot, head, d] (their "NHD"), with blocks of any size. They know
windows and soft caps, and no sinks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from yaie.backends.attention import RotateAndStore, rows_in_one_piece
from yaie.backends.base import Roles, register_backend
from yaie.backends.triton import TritonBackend, has_triton
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import BatchAttention, KVPool
from yaie.core.errors import ConfigError, KernelError

LIBRARY = "flashinfer"
WORKSPACE = 384 << 20
"""Bytes for partial results of sequences that are cut in parts."""


@register_backend("flashinfer")
class FlashInferBackend(TritonBackend):
    """See `Backend`. The library compiles a kernel when it is first used, and keeps it."""

    kernels: ClassVar[Roles] = {**TritonBackend.kernels, "attention": ()}
    dtypes = (torch.float16, torch.bfloat16)
    head_dims: ClassVar[tuple[int, ...]] = (64, 128, 256)

    @classmethod
    def check(cls, device: torch.device) -> str:
        lacks = ""
        if device.type != "cuda" or torch.version.hip is not None:
            lacks = "needs an NVIDIA GPU"
        elif find_spec(LIBRARY) is None:
            lacks = "needs FlashInfer: pip install flashinfer-python"
        elif not has_triton():
            lacks = "needs Triton for all but attention: pip install 'yaie[gpu]' (Linux)"
        if lacks:
            raise ConfigError(
                f"backend 'flashinfer' {lacks}. Or leave the backend to auto.", param="backend"
            )
        return "attention by FlashInfer, all else in Triton"

    @classmethod
    def takes_heads_of(cls, dimensions: int) -> bool:
        return dimensions in cls.head_dims

    @classmethod
    def heads_taken(cls) -> str:
        return f"{', '.join(map(str, cls.head_dims[:-1]))} or {cls.head_dims[-1]}"

    @property
    def may_be_captured(self) -> bool:
        return False

    @property
    def why_not_captured(self) -> str:
        if self.has_kernels("attention"):
            return "attention is planned on the host in each step"
        return super().why_not_captured

    def prepare(self, device: torch.device) -> None:
        super().prepare(device)
        if not self.has_kernels("attention"):
            return
        try:
            import_module(LIBRARY)
        except (ImportError, OSError, RuntimeError) as error:
            raise KernelError(f"FlashInfer cannot be loaded: {error}") from error

    def make_attention(self, pool: KVPool) -> BatchAttention:
        if not self.has_kernels("attention"):
            return super().make_attention(pool)
        return FlashInferAttention(pool, self._rotate_and_store())


class Pages(NamedTuple):
    """Where the keys of n sequences lie, as FlashInfer takes it.

    starts: int32 [n + 1] on the host, where each one's blocks begin in `blocks`. blocks: int32
    [starts[n]], where the tables are. last: int32 [n] on the host, keys in each one's last block.
    """

    starts: Tensor
    blocks: Tensor
    last: Tensor


def pages_of(tables: Tensor, lens: Sequence[int], block_size: int) -> Pages:
    """tables: int32 [n, m]. lens: keys of each sequence, at least one. Nothing waits for the device."""
    counts = torch.tensor([-(-length // block_size) for length in lens], dtype=torch.int32)
    starts = torch.tensor([0, *accumulate(counts.tolist())], dtype=torch.int32)
    total, there = int(starts[-1]), tables.device
    each = counts.to(there)
    begins = starts[:-1].to(there).repeat_interleave(each, output_size=total)
    rows = torch.arange(len(lens), device=there).repeat_interleave(each, output_size=total)
    blocks = tables[rows, torch.arange(total, device=there) - begins]
    last = torch.tensor([(length - 1) % block_size + 1 for length in lens], dtype=torch.int32)
    return Pages(starts, blocks.int(), last)


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Rows [start, end) of the flat batch. queries: int32 [n + 1] on the host, where each sequence's
    begin among them; None if all have one."""

    start: int
    end: int
    pages: Pages
    queries: Tensor | None


class FlashInferPlan(NamedTuple):
    """What every layer of a step shares. slot_mapping: as in the batch. phases: decodes, the rest."""

    slot_mapping: Tensor
    phases: list[Phase]


class Kind(NamedTuple):
    """What FlashInfer has to know when it plans; most models have one kind of layer."""

    decodes: bool
    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype
    scale: float
    window: int | None
    softcap: float | None


class Planned:
    """One of the library's wrappers, which holds the plan of one phase at a time."""

    def __init__(self, kind: Kind, workspace: Tensor) -> None:
        library: Any = import_module(LIBRARY)
        self._kind = kind
        self._phase: Phase | None = None
        self._uploaded = torch.cuda.Event() if workspace.is_cuda else None
        if kind.decodes:
            self._wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
                workspace, "NHD", use_tensor_cores=True
            )
        else:
            self._wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")

    def run(self, q: Tensor, keys: Tensor, values: Tensor, phase: Phase) -> Tensor:
        """q: the phase's rows [m, heads, d]. keys, values: a layer's blocks. Returns [m, heads, d]."""
        if self._phase is not phase:
            self._plan(phase, keys.shape[1])
        out: Tensor = self._wrapper.run(q, (keys, values))
        return out

    def _plan(self, phase: Phase, block_size: int) -> None:
        """The last plan is uploaded from the memory where the next one is written."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        kind, queries = self._kind, () if phase.queries is None else (phase.queries,)
        self._wrapper.plan(
            *queries, *phase.pages, kind.heads, kind.kv_heads, kind.dim, block_size,
            sm_scale=kind.scale,
            window_left=-1 if kind.window is None else kind.window - 1,
            logits_soft_cap=kind.softcap,
            q_data_type=kind.dtype,
            kv_data_type=kind.dtype,
            **({} if kind.decodes else {"causal": True}),
        )  # fmt: skip
        self._phase = phase
        if self._uploaded is not None:
            self._uploaded.record()


class FlashInferAttention:
    """See `yaie.core.contracts.BatchAttention`; `run` also takes the rotation along (see `Attend`)."""

    takes_rotation = True

    def __init__(self, pool: KVPool, store: RotateAndStore) -> None:
        self._pool = pool
        self._store = store
        self._made: dict[Kind, Planned] = {}
        self._shared: Tensor | None = None

    def plan(self, batch: AttentionBatch) -> FlashInferPlan:
        """Decodes at the front, and what follows them; the library plans when a layer asks first."""
        lens, count = batch.query_lens, len(batch.query_lens)
        decodes = next((row for row, length in enumerate(lens) if length != 1), count)
        phases = []
        if decodes:
            phases.append(Phase(0, decodes, self._pages(batch, 0, decodes), None))
        if decodes < count:
            queries = torch.tensor([0, *accumulate(lens[decodes:])], dtype=torch.int32)
            pages = self._pages(batch, decodes, count)
            phases.append(Phase(decodes, decodes + int(queries[-1]), pages, queries))
        return FlashInferPlan(batch.slot_mapping, phases)

    def _pages(self, batch: AttentionBatch, first: int, last: int) -> Pages:
        tables, lens = batch.block_tables[first:last], batch.kv_lens[first:last]
        return pages_of(tables, lens, self._pool.block_size)

    def run(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        plan: FlashInferPlan,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d]."""
        if spec.sinks is not None:
            raise ConfigError(
                "this model's attention has sinks, which backend 'flashinfer' does not know: leave the "
                "backend to auto",
                param="backend",
            )
        keys, values = self._pool.blocks(layer)
        q, k, v = rows_in_one_piece(q), rows_in_one_piece(k), rows_in_one_piece(v)
        q, k = self._store(q, k, v, keys, values, plan.slot_mapping, rotation)
        shape = (q.shape[1], keys.shape[2], q.shape[2], q.dtype)
        outputs = []
        for phase in plan.phases:
            kind = Kind(phase.queries is None, *shape, spec.scale, spec.window, spec.softcap)
            if kind not in self._made:
                self._made[kind] = Planned(kind, self._workspace(q.device))
            rows = q[phase.start : phase.end]
            outputs.append(self._made[kind].run(rows, keys, values, phase))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _workspace(self, device: torch.device) -> Tensor:
        """Of all wrappers, since one runs at a time."""
        if self._shared is None:
            self._shared = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        return self._shared
