"""Puts the parts together: each is handed what it needs, none looks for it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from yaie.core.batch import StepPlan
from yaie.core.config import EngineConfig
from yaie.core.contracts import EngineCore, KVCacheManager, Sampler, Scheduler
from yaie.engine.backends import Backend, make_attention, make_pool, make_sampler
from yaie.engine.deterministic import LoneAttention, LoneSampler, TiledAdapter
from yaie.engine.model_runner import ModelRunner
from yaie.engine.request_sampler import RequestSampler
from yaie.engine.sizing import block_bytes, num_device_blocks, num_host_blocks
from yaie.models.loader import LoadedModel
from yaie.parts import Parts


@dataclass(frozen=True, slots=True)
class Machine:
    """The assembled engine. num_blocks: of the KV pool, bytes_per_block each."""

    core: EngineCore
    scheduler: Scheduler
    cache: KVCacheManager
    num_blocks: int
    bytes_per_block: int


def assemble(
    config: EngineConfig,
    backend: Backend,
    parts: Parts,
    model: LoadedModel,
    max_model_len: int,
    on_plan: Callable[[StepPlan], None] | None = None,
) -> Machine:
    """Build pool, cache, scheduler, runner and step loop for a loaded model. on_plan: for the runner."""
    layers = model.adapter.kv_layers
    bytes_per_block = block_bytes(layers, config.block_size, model.dtype)
    num_blocks = num_device_blocks(config, bytes_per_block, max_model_len, model.device)
    num_host = num_host_blocks(config, bytes_per_block)

    paged_cache = parts["paged_cache"]
    blocks = paged_cache.BlockManager(num_blocks, config.block_size, num_host)
    tree = parts["radix_tree"].RadixTree(config.block_size) if config.prefix_caching else None
    cache: KVCacheManager = paged_cache.KVCacheManager(blocks, tree)
    pool = make_pool(
        backend, parts, config, layers, num_blocks, num_host, model.dtype, model.device
    )
    adapter, attention = model.adapter, make_attention(backend, parts, pool)
    sampler: Sampler = RequestSampler(make_sampler(backend, parts))
    if config.deterministic:
        adapter, attention = TiledAdapter(adapter), LoneAttention(attention, config.block_size)
        sampler = LoneSampler(sampler, adapter.vocab_size, model.device)
    scheduler = _scheduler(config, parts, cache, num_blocks, max_model_len)
    runner = ModelRunner(
        adapter, attention, pool, model.device, config.max_num_seqs, max_model_len, on_plan
    )
    engine = parts["engine"]
    core = engine.EngineCore(
        scheduler,
        runner,
        sampler,
        partial(engine.Detokenizer, model.tokenizer.decode),
        engine.StopChecker,
        model.eos_token_ids,
    )
    return Machine(core, scheduler, cache, num_blocks, bytes_per_block)


def _scheduler(
    config: EngineConfig, parts: Parts, cache: KVCacheManager, num_blocks: int, max_model_len: int
) -> Scheduler:
    part = parts["scheduler"]
    kind = part.StaticScheduler if config.batching == "static" else part.Scheduler
    # Without chunks a prompt is computed whole, so the longest one must fit the budget.
    budget = (
        config.token_budget if config.chunked_prefill else max(config.token_budget, max_model_len)
    )
    scheduler: Scheduler = kind(
        cache,
        part.POLICIES[config.policy](cache),
        max_num_seqs=config.max_num_seqs,
        token_budget=budget,
        chunked_prefill=config.chunked_prefill,
        swap=config.preemption == "swap",
        watermark=int(config.watermark * num_blocks),
    )
    return scheduler
