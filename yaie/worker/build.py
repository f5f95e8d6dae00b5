"""Makes a worker for a loaded model, on the parts that a backend names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from yaie.backends.base import Backend
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.errors import PartError, YaieError
from yaie.models.adapter import ModelAdapter
from yaie.models.draft_head import DraftHead
from yaie.worker.deterministic import LoneAttention, LoneSampler, TiledAdapter
from yaie.worker.draft_worker import DraftWorker
from yaie.worker.faults import fault_of
from yaie.worker.graphing import graph_runner
from yaie.worker.graphs import device_for
from yaie.worker.invariant import InvariantAdapter
from yaie.worker.progress import bar
from yaie.worker.readouts.proposals import MtpDrafts, Proposals
from yaie.worker.sizing import (
    GRAPH_SHARE,
    MOST_UNSETTLED,
    block_bytes,
    free_memory,
    num_blocks_of_groups,
    num_device_blocks,
    num_host_blocks,
    num_state_checkpoints,
    num_state_seats,
    peak_memory,
    slot_bytes,
    unsettled_bytes,
)
from yaie.worker.staged import StagedWorker
from yaie.worker.warmup import WarmupError, warm_up
from yaie.worker.windows import Held
from yaie.worker.worker import Worker


class Loaded(Protocol):
    """What a worker is made of, of a LoadedModel or of a rank's part of one."""

    @property
    def adapter(self) -> ModelAdapter: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def max_length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a worker holds, which control has to know.

    num_blocks, num_host_blocks: of the KV pool and of the host pool, bytes_per_block each.
    num_seats: requests that may have state at the worker; half as many may run.
    bytes_per_slot: of what the layers that keep a state keep of one request; 0 if there are none.
    num_checkpoints: slots for such states beside those of the seats.
    num_windowed_blocks, bytes_per_windowed_block: of the layers with a window, where others see all of a
        text; `num_blocks` and `bytes_per_block` are of the others then.
    """

    num_blocks: int
    num_host_blocks: int
    bytes_per_block: int
    num_seats: int
    bytes_per_slot: int = 0
    num_checkpoints: int = 0
    num_windowed_blocks: int = 0
    bytes_per_windowed_block: int = 0

    def states(self, num_ranks: int) -> str:
        """What is held for layers that keep a state, in words; "" for nothing. num_ranks: those that
        split each layer, and hold as much each."""
        if not self.bytes_per_slot:
            return ""
        count = self.num_seats + 1 + self.num_checkpoints
        where, each = (f" on each of {num_ranks} ranks", " each") if num_ranks > 1 else ("", "")
        return (
            f"{self.bytes_per_slot / 2**10:,.1f} KiB a request{where}, whatever its length: for "
            f"{self.num_seats // 2} at once, and {self.num_checkpoints} behind cached prefixes "
            f"({count * self.bytes_per_slot / 2**20:,.1f} MiB{each})"
        )


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafts for the model, of the two at most one: a model of its own, or a head."""

    model: ModelAdapter | None = None
    head: DraftHead | None = None


def sizes_for(
    config: EngineConfig,
    backend: Backend,
    model: Loaded,
    drafting: Drafting | None = None,
    held: Held | None = None,
) -> Sizes:
    """What fits, which on a GPU is known once the largest step has been computed. held: what a request
    holds, if that is less than all of its text.

    Raises ConfigError if not even one block does, and PartError for a learner's part that cannot compute
    such a step.
    """
    device = model.device
    drafting = drafting or Drafting()
    layers = _kv_layers(model, drafting.head)
    bytes_of = partial(
        block_bytes,
        block_size=config.block_size,
        dtype=model.dtype,
        int8=config.kv_dtype == "int8",
    )
    groups = held if held is not None and held.full else None
    bytes_windowed = 0
    if groups is not None:
        bytes_windowed = bytes_of([layers[index] for index in groups.windowed])
        layers = [layers[index] for index in groups.full]
    bytes_each = bytes_of(layers)
    if drafting.model is not None:  # its pool has as many blocks
        bytes_each += block_bytes(drafting.model.kv_layers, config.block_size, drafting.model.dtype)
    # Twice what runs: a batch that ended and the one that takes over.
    needed, num_seats = 0, 2 * config.max_num_seqs
    bytes_per_slot = num_checkpoints = 0
    if model.adapter.state_layers:
        bytes_per_slot = slot_bytes(model.adapter.state_layers)
        num_seats = _least(num_state_seats(config, bytes_per_slot, device), model)
        num_checkpoints = num_state_checkpoints(config, bytes_per_slot, num_seats, device)
        needed = (num_seats + 1 + num_checkpoints) * bytes_per_slot
        if config.speculate != "off":
            drafts = config.drafts or MOST_UNSETTLED
            needed += unsettled_bytes(model.adapter.state_layers, num_seats // 2, drafts)
    if device.type == "cuda" and (config.num_blocks is None or config.graphs in ("auto", "on")):
        needed += int(GRAPH_SHARE * free_memory(device))
        needed += _warmed_up(config, backend, model, num_seats // 2, groups)
    longest, num_windowed = model.max_length, 0
    if groups is not None:
        num_blocks, num_windowed = num_blocks_of_groups(
            config, (bytes_each, bytes_windowed), groups, device, needed
        )
    else:
        if held is not None and drafting.model is None:  # that would hold all of a text
            longest = (held.most + 1) * config.block_size
        num_blocks = num_device_blocks(config, bytes_each, longest, device, needed)
    return Sizes(
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks(config, bytes_each),
        bytes_per_block=bytes_each,
        num_seats=num_seats,
        bytes_per_slot=bytes_per_slot,
        num_checkpoints=num_checkpoints,
        num_windowed_blocks=num_windowed,
        bytes_per_windowed_block=bytes_windowed,
    )


def _least(number: int, model: Loaded) -> int:
    """Of what each rank that splits the layers says: they warm up with the same steps."""
    own = torch.tensor([number], device=model.device)
    return int(model.adapter.shard.all_gather(own).min())


def _warmed_up(
    config: EngineConfig,
    backend: Backend,
    model: Loaded,
    num_seqs: int,
    groups: Held | None,
) -> int:
    """Bytes that steps take at most; their kernels are compiled then. One block of a pool will do.
    num_seqs: requests that run at once."""
    sizes = Sizes(1, 0, 0, num_seqs, num_windowed_blocks=1)
    worker = _bare_worker(config, backend, model, sizes, groups=groups)
    with peak_memory(model.device) as peak:
        try:
            budget = config.step_tokens(model.device.type)
            warm_up(worker, budget, num_seqs, bar("Preparing kernels"))
        except WarmupError as error:
            raise _told(error) from error
        return peak()


def _told(error: WarmupError) -> YaieError:
    fault = error.fault
    if fault.lab:
        return PartError(f"your part {fault.lab} failed: {fault.message} ({fault.where})")
    return YaieError(f"a step failed: {fault.message} ({fault.where})")


def _kv_layers(model: Loaded, head: DraftHead | None) -> list[KVLayerSpec]:
    return model.adapter.kv_layers if head is None else head.kv_layers


def make_draft_worker(
    config: EngineConfig, backend: Backend, adapter: ModelAdapter, sizes: Sizes
) -> DraftWorker:
    """A draft model on a pool of its own, with as many blocks as the model's."""
    pool = backend.make_pool(
        adapter.kv_layers, sizes.num_blocks, config.block_size, adapter.dtype, adapter.device, 0
    )
    return DraftWorker(adapter, backend.make_attention(pool), pool, adapter.device)


def make_worker(
    config: EngineConfig,
    backend: Backend,
    model: Loaded,
    sizes: Sizes,
    head: DraftHead | None = None,
    held: Held | None = None,
) -> Worker:
    """Pool, attention and sampler around the model, and what carries out padded steps. held: what a
    request holds, if that is less than all of its text.

    Raises ConfigError if graphs are demanded that cannot be had.
    """
    groups = held if held is not None and held.full else None
    worker = _bare_worker(config, backend, model, sizes, head, groups)
    if not isinstance(worker, StagedWorker):
        worker.runner, worker.note = graph_runner(config, backend, worker)
    return worker


def _bare_worker(
    config: EngineConfig,
    backend: Backend,
    model: Loaded,
    sizes: Sizes,
    head: DraftHead | None = None,
    groups: Held | None = None,
) -> Worker:
    is_alone = config.deterministic and backend.invariant_gemm is None

    def memory(layers: Sequence[KVLayerSpec], num_blocks: int) -> tuple[KVPool, BatchAttention]:
        make_pool = backend.make_int8_pool if config.kv_dtype == "int8" else backend.make_pool
        size, num_host = config.block_size, sizes.num_host_blocks
        pool = make_pool(layers, num_blocks, size, model.dtype, model.device, num_host)
        attention = backend.make_attention(pool)
        return pool, LoneAttention(attention, size) if is_alone else attention

    layers, adapter = _kv_layers(model, head), model.adapter
    pool: KVPool
    attention: BatchAttention
    if groups is None:
        pool, attention = memory(layers, sizes.num_blocks)
    else:
        from yaie.worker.layer_groups import grouped

        parts = [
            memory([layers[index] for index in group], count)
            for group, count in (
                (groups.full, sizes.num_blocks),
                (groups.windowed, sizes.num_windowed_blocks),
            )
        ]
        pool, attention = grouped(groups.full, groups.windowed, parts[0], parts[1])
    sampler: Sampler = backend.make_sampler()
    if backend.invariant_gemm is not None:
        adapter = InvariantAdapter(adapter, backend.invariant_gemm)
    elif is_alone:
        adapter, sampler = TiledAdapter(adapter), LoneSampler(sampler)
    speculative = backend.parts["speculative"]
    kind: Callable[..., Worker] = Worker if adapter.shard.passing is None else StagedWorker
    if groups is not None:
        from yaie.worker.layer_groups import GroupedWorker

        kind = GroupedWorker
    if adapter.state_layers:
        from yaie.backends.states import make_state_ops, rollback_of
        from yaie.worker.states import StatefulWorker

        kind = partial(
            StatefulWorker,
            state_ops=make_state_ops(backend.name, backend.parts, model.device),
            make_pool=backend.parts["state_cache"].StatePool,
            rollback=rollback_of(backend.parts),
            num_checkpoints=sizes.num_checkpoints,
            replays_drafts=config.speculate != "off",
        )
    worker = kind(
        adapter,
        attention,
        pool,
        sampler,
        model.device,
        num_seats=sizes.num_seats,
        max_model_len=model.max_length,
        explain=lambda error: fault_of(error, backend.parts),
        to_host=partial(backend.parts["cuda_graphs"].ToHost, device=device_for(model.device)),
        accepted=speculative.accepted,
    )
    if adapter.shard.size > 1:
        first = adapter.shard.first_token(adapter.vocab_size)
        worker.split_sampler = backend.make_split_sampler(first, adapter.shard.all_gather)
    if head is not None:
        drafts = MtpDrafts(head, attention, pool, speculative.kept)
        worker.readouts["proposals"] = partial(Proposals, drafts)
    return worker
