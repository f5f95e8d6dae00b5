"""Each reference part satisfies its contract: read by the type checker, never run.

The engine loads parts by name, so nothing else would hold their types against the contracts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solutions import (
        api_server,
        engine,
        paged_cache,
        radix_attention,
        radix_tree,
        sampler,
        scheduler,
        transformer_ops,
    )
    from yaie.core import contracts
    from yaie.engine.model_runner import ModelRunner
    from yaie.engine.request_stream import RequestStream
    from yaie.server.service import Service

    _sampler: type[contracts.Sampler] = sampler.Sampler
    _ops: type[contracts.TransformerOps] = transformer_ops.TransformerOps
    _blocks: type[contracts.BlockManager] = paged_cache.BlockManager
    _pool: type[contracts.KVPool] = paged_cache.KVPool
    _cache: type[contracts.KVCacheManager] = paged_cache.KVCacheManager
    _tree: type[contracts.RadixTree] = radix_tree.RadixTree
    _attention: type[contracts.RadixAttention] = radix_attention.RadixAttention
    _scheduler: type[contracts.Scheduler] = scheduler.Scheduler
    _static: type[contracts.Scheduler] = scheduler.StaticScheduler
    _detokenizer: type[contracts.Detokenizer] = engine.Detokenizer
    _stop_checker: type[contracts.StopChecker] = engine.StopChecker
    _core: type[contracts.EngineCore] = engine.EngineCore
    _runner: type[contracts.ModelRunner] = ModelRunner
    _api: contracts.ApiServer = api_server
    _stream: type[contracts.OutputStream] = RequestStream
    _backend: type[contracts.ServingBackend] = Service
