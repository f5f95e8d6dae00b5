"""Makes a worker for a loaded model, on the parts that a backend names."""

from dataclasses import dataclass

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig
from yaie.core.contracts import Sampler
from yaie.core.step import Fault
from yaie.curriculum.blame import line_in, line_of_ours, lines_of, summarize
from yaie.models.loader import LoadedModel
from yaie.parts import Parts
from yaie.worker.deterministic import LoneAttention, LoneSampler, TiledAdapter
from yaie.worker.sizing import block_bytes, num_device_blocks, num_host_blocks
from yaie.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a worker holds, which control has to know.

    num_blocks, num_host_blocks: of the KV pool and of the host pool, bytes_per_block each.
    num_seats: requests that may have state at the worker.
    """

    num_blocks: int
    num_host_blocks: int
    bytes_per_block: int
    num_seats: int


def sizes_for(config: EngineConfig, model: LoadedModel) -> Sizes:
    """What fits. Raises ConfigError if not even one block does."""
    bytes_each = block_bytes(model.adapter.kv_layers, config.block_size, model.dtype)
    return Sizes(
        num_blocks=num_device_blocks(config, bytes_each, model.max_length, model.device),
        num_host_blocks=num_host_blocks(config, bytes_each),
        bytes_per_block=bytes_each,
        # Twice what runs: a batch that ended and the one that takes over.
        num_seats=2 * config.max_num_seqs,
    )


def make_worker(config: EngineConfig, backend: Backend, model: LoadedModel, sizes: Sizes) -> Worker:
    """Pool, attention and sampler around the model."""
    pool = backend.make_pool(
        model.adapter.kv_layers,
        sizes.num_blocks,
        config.block_size,
        model.dtype,
        model.device,
        sizes.num_host_blocks,
    )
    adapter, attention = model.adapter, backend.make_attention(pool)
    sampler: Sampler = backend.make_sampler()
    if config.deterministic:
        adapter, attention = TiledAdapter(adapter), LoneAttention(attention, config.block_size)
        sampler = LoneSampler(sampler)
    return Worker(
        adapter,
        attention,
        pool,
        sampler,
        model.device,
        num_seats=sizes.num_seats,
        max_model_len=model.max_length,
        explain=lambda error: fault_of(error, backend.parts),
    )


def fault_of(error: BaseException, parts: Parts) -> Fault:
    """An exception as data: which of the learner's parts failed, if one did, and in which line."""
    mine = [part for part in parts.table() if part.is_yours]
    for file, _ in lines_of(error):
        for part in mine:
            if file.is_relative_to(part.folder):
                where = line_in(part.folder, error) or ""
                return Fault(summarize(error), part.lab, where)
    return Fault(summarize(error), "", line_of_ours(error))
