"""Each reference part satisfies its contract: read by the type checker, never run.

The engine loads parts by name, so nothing else would hold their types against the contracts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solutions import (
        api_server,
        cuda_flash_attention,
        cuda_graphs,
        cuda_memory_ops,
        cuda_ops,
        cuda_paged_attention,
        engine,
        paged_cache,
        quantization,
        radix_attention,
        radix_tree,
        sampler,
        scheduler,
        speculative,
        state_cache,
        structured_output,
        tensor_parallel,
        transformer_ops,
        triton_flash_attention,
        triton_ops,
        triton_paged_attention,
        triton_sampling,
    )
    from yaie.backends.attention import KernelAttention
    from yaie.backends.ops import KernelOps
    from yaie.backends.pool import KernelPool
    from yaie.core import contracts
    from yaie.core.contracts import (
        constraining,
        drafting,
        graphs,
        kernels,
        quantizing,
        ranks,
        rollback,
        states,
    )
    from yaie.engine.background.streams import RequestStream
    from yaie.engine.drafting.lookahead import AheadProposer
    from yaie.engine.drafting.models import ModelProposer
    from yaie.engine.drafting.ngrams import NgramProposer
    from yaie.engine.input.grammars.compiler import LibraryFollower, LibraryGrammar
    from yaie.engine.input.grammars.matchers import Compiled, Follower
    from yaie.engine.input.grammars.own_grammars import OwnFollower, OwnGrammar
    from yaie.engine.step.executor import SentStep, StepExecutor
    from yaie.server.service import Service
    from yaie.worker.graphs import CudaDevice
    from yaie.worker.padded import PaddedMachine
    from yaie.worker.parallel import links
    from yaie.worker.step_future import StepFuture
    from yaie.worker.threaded import ThreadedWorker
    from yaie.worker.transfer import HostDevice
    from yaie.worker.worker import Worker

    _sampler: type[contracts.Sampler] = sampler.Sampler
    _ops: type[contracts.TransformerOps] = transformer_ops.TransformerOps
    _blocks: type[contracts.BlockManager] = paged_cache.BlockManager
    _pool: type[contracts.KVPool] = paged_cache.KVPool
    _cache: type[contracts.KVCacheManager] = paged_cache.KVCacheManager
    _tree: type[contracts.RadixTree] = radix_tree.RadixTree
    _attention: type[contracts.BatchAttention] = radix_attention.RadixAttention
    _scheduler: type[contracts.Scheduler] = scheduler.Scheduler
    _static: type[contracts.Scheduler] = scheduler.StaticScheduler
    _detokenizer: type[contracts.Detokenizer] = engine.Detokenizer
    _stop_checker: type[contracts.StopChecker] = engine.StopChecker
    _core: type[contracts.EngineCore] = engine.EngineCore
    _overlapped: type[contracts.EngineCore] = cuda_graphs.OverlappedLoop
    _sender: type[graphs.StepSender] = StepExecutor
    _sent: type[graphs.SentStep] = SentStep
    _executor: type[contracts.Executor] = StepExecutor
    _pending: type[contracts.PendingStep] = SentStep
    _worker: type[contracts.Worker] = Worker
    _handle: type[contracts.StepHandle] = StepFuture
    _threaded: type[contracts.Worker] = ThreadedWorker
    _api: contracts.ApiServer = api_server
    _stream: type[contracts.OutputStream] = RequestStream
    _service: type[contracts.ModelService] = Service

    _kernel_ops: type[contracts.TransformerOps] = KernelOps
    _kernel_attention: type[contracts.BatchAttention] = KernelAttention
    _kernel_pool: type[contracts.KVPool] = KernelPool

    _triton_layer: type[kernels.LayerKernels] = triton_ops.LayerKernels
    _triton_store: type[kernels.StoreKernel] = triton_ops.LayerKernels
    _triton_flash: type[kernels.FlashAttention] = triton_flash_attention.FlashAttention
    _triton_paged: type[kernels.PagedAttention] = triton_paged_attention.PagedAttention
    _triton_sampler: type[contracts.Sampler] = triton_sampling.Sampler
    _cuda_memory: type[kernels.MemoryKernels] = cuda_memory_ops.MemoryKernels
    _cuda_layer: type[kernels.LayerKernels] = cuda_ops.LayerKernels
    _cuda_flash: type[kernels.FlashAttention] = cuda_flash_attention.FlashAttention
    _cuda_paged: type[kernels.PagedAttention] = cuda_paged_attention.PagedAttention
    _runner: type[graphs.GraphRunner] = cuda_graphs.GraphRunner
    _to_host: type[graphs.ToHost] = cuda_graphs.ToHost
    _int8: type[quantizing.Int8] = quantization.Int8
    _int4: type[quantizing.Int4] = quantization.Int4
    _hessian: type[quantizing.Hessian] = quantization.Hessian
    _gptq: type[quantizing.Gptq] = quantization.Gptq
    _int8_pool: type[quantizing.Int8KVPool] = quantization.Int8KVPool
    _shares: ranks.Shares = tensor_parallel
    _ring: type[ranks.Ring] = tensor_parallel.Ring
    _row_parallel: type[ranks.RowParallel] = tensor_parallel.RowParallel
    _vocab_embedding: type[ranks.VocabEmbedding] = tensor_parallel.VocabEmbedding
    _vocab_logits: type[ranks.VocabLogits] = tensor_parallel.VocabLogits
    _pipeline: type[ranks.Pipeline] = tensor_parallel.Pipeline
    _link: type[ranks.Link] = links.GroupLink
    _machine: type[graphs.StepMachine] = PaddedMachine
    _cuda: type[graphs.Device] = CudaDevice
    _host: type[graphs.Device] = HostDevice
    _schemas: constraining.SchemaGrammar = structured_output.schema_grammar
    _automaton: type[constraining.ByteAutomaton] = structured_output.ByteAutomaton
    _masks: type[constraining.TokenMasks] = structured_output.TokenMasks
    _matcher: type[constraining.Matcher] = structured_output.Matcher
    _short_conv: states.ShortConv = state_cache.short_conv
    _delta_step: states.DeltaStep = state_cache.delta_step
    _delta_chunk: states.DeltaChunk = state_cache.delta_chunk
    _decays: states.Decays = state_cache.decays
    _states: type[states.StatePool] = state_cache.StatePool
    _read_states: states.ReadStates = state_cache.read_states
    _write_states: states.WriteStates = state_cache.write_states
    _checkpoints: type[states.Checkpoints] = state_cache.Checkpoints
    _cut_share: states.CutShare = state_cache.cut_share
    _rollback: rollback.Rollback = state_cache
    _followers: tuple[type[Follower], type[Follower]] = (OwnFollower, LibraryFollower)
    _compiled: tuple[type[Compiled], type[Compiled]] = (OwnGrammar, LibraryGrammar)
    _ngrams: type[contracts.Proposer] = NgramProposer
    _drafts: type[contracts.Proposer] = ModelProposer
    _made_ahead: type[contracts.Proposer] = AheadProposer
    _index: type[drafting.NgramIndex] = speculative.NgramIndex
    _accepted: drafting.Accepted = speculative.accepted
    _residual: drafting.Residual = speculative.residual
    _rejection: drafting.RejectionSample = speculative.rejection_sample
    _places: type[drafting.DraftPlaces] = speculative.DraftPlaces
    _kept: drafting.KeptOf = speculative.kept
    _masks_ahead: drafting.MasksAhead = speculative.masks_ahead
    _acceptance: type[drafting.Acceptance] = speculative.Acceptance
    _most_worth: drafting.MostWorth = speculative.most_worth
    _cuda_prefix: type[kernels.PrefixKernel] = cuda_paged_attention.PrefixKernel
