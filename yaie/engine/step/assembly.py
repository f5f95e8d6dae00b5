"""Puts the parts together: each is handed what it needs, none looks for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from yaie.backends.base import Backend
from yaie.core.batch import KVLayerSpec, StepPlan
from yaie.core.config import EngineConfig, Graphs
from yaie.core.contracts import (
    BlockManager,
    Detokenizer,
    EngineCore,
    KVCacheManager,
    Proposer,
    RadixTree,
    Scheduler,
    Worker,
)
from yaie.engine.drafting.ahead import AheadProposer
from yaie.engine.drafting.drafter import Drafter, OnVerified
from yaie.engine.drafting.models import ModelProposer
from yaie.engine.drafting.ngrams import NgramProposer
from yaie.engine.step.byte_text import ByteDetokenizer, TokenTable
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.executor import StepExecutor, StepObserver
from yaie.engine.step.explaining import parts_in_steps
from yaie.engine.step.isolation import IsolatingCore, Isolation, TextIsolation
from yaie.engine.step.late_stops import stop_checker
from yaie.engine.step.pacer import StepPacer
from yaie.models.loader import LoadedModel
from yaie.models.tokenizer import Tokenizer
from yaie.parts import Parts
from yaie.worker.build import Drafting, Sizes, make_draft_worker, make_worker, sizes_for
from yaie.worker.ranks.crew import Crew
from yaie.worker.ranks.ranked_worker import RankedWorker
from yaie.worker.threaded import ThreadedWorker

T = TypeVar("T")


@dataclass(slots=True)
class Machine:
    """The assembled engine: control above, a worker below.

    blocks, tree: what the cache was given; for those who watch.
    note: how it computes decode steps, or "". graphs_again: the setting that makes another machine
        compute them alike, without a trial and without a wait.
    kv_layers: of the pool, one for each layer. pacer: what may keep steps short.
    """

    core: EngineCore
    scheduler: Scheduler
    cache: KVCacheManager
    blocks: BlockManager
    tree: RadixTree | None
    worker: Worker
    sizes: Sizes
    note: str
    graphs_again: Graphs
    kv_layers: list[KVLayerSpec]
    pacer: StepPacer

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return self.scheduler.num_waiting

    def reset_prefix_cache(self) -> int:
        """See `KVCacheManager`."""
        return self.cache.reset_prefix_cache()

    def guarded(self, call: Callable[[], T]) -> T:
        """What `call` returns, which calls parts of the machine between two steps."""
        return call()


def assemble(
    config: EngineConfig,
    backend: Backend,
    model: LoadedModel,
    on_plan: Callable[[StepPlan], None] | None = None,
    wrap_worker: Callable[[Worker], Worker] | None = None,
    on_verified: OnVerified | None = None,
    drafting: Drafting | None = None,
    crew: Crew | None = None,
    observers: Sequence[StepObserver] = (),
) -> Machine:
    """Cache, scheduler and step loop for a loaded model, and the worker that they send steps to.

    on_plan: told of each plan before it is sent. wrap_worker: what to put in front of the worker.
    on_verified: told what became of drafts. drafting: what makes them, if `config.speculate` needs it.
    crew: the ranks that hold the rest of the model. observers: are told how long each step took.
    """
    drafting = drafting or Drafting()
    sizes = sizes_for(config, backend, model, drafting)
    if crew is not None:
        sizes = crew.agree(sizes, model.dtype)
    parts = backend.parts
    blocks = parts["paged_cache"].BlockManager(
        sizes.num_blocks, config.block_size, sizes.num_host_blocks
    )
    tree = parts["radix_tree"].RadixTree(config.block_size) if config.prefix_caching else None
    cache: KVCacheManager = parts["paged_cache"].KVCacheManager(blocks, tree)
    scheduler = _scheduler(config, parts, cache, sizes.num_blocks, model)
    inner = make_worker(config, backend, model, sizes, drafting.head)
    overlapped = overlaps(config, model)
    threaded = overlapped and model.device.type == "cpu"
    worker: Worker = ThreadedWorker(inner, torch.get_num_threads()) if threaded else inner
    if crew is not None:
        crew.begin()
        worker = RankedWorker(worker, crew)
    if wrap_worker is not None:
        worker = wrap_worker(worker)
    vocab_size = model.adapter.vocab_size
    isolation = Isolation(parts if parts_in_steps(parts) else None)
    encoder = StepEncoder(sizes.num_seats, vocab_size, model.eos_token_ids, isolation)
    proposer = _proposer(config, backend, drafting, sizes, isolation)
    drafter = _drafter(config, parts, model, cache, proposer, on_verified, isolation)
    pacer = StepPacer(scheduler, config.step_tokens(model.device.type))
    executor = StepExecutor(
        worker, encoder, vocab_size, on_plan, drafter, [pacer, *observers], isolation
    )
    texts = TextIsolation(isolation, scheduler)
    engine = parts["engine"]
    core: EngineCore = engine.EngineCore(
        scheduler,
        executor,
        texts.detokenizers(_detokenizers(parts, model.tokenizer)),
        texts.stop_checkers(partial(stop_checker, engine.StopChecker)),
        model.eos_token_ids,
    )
    if overlapped:
        core = parts["cuda_graphs"].OverlappedLoop(core, scheduler, executor)
    core = IsolatingCore(core, scheduler, isolation, texts)
    graphs: Graphs = "off" if inner.decodes is None else "lazy"
    if config.graphs == "padded":
        graphs = "padded"
    layers = model.adapter.kv_layers
    note = inner.note
    return Machine(core, scheduler, cache, blocks, tree, worker, sizes, note, graphs, layers, pacer)


def overlaps(config: EngineConfig, model: LoadedModel) -> bool:
    """Whether the overlapped loop runs; `auto` is where the device works while Python does not, and
    drafts need not know the token before them."""
    if config.overlap == "auto":
        may = config.batching == "continuous" and config.speculate == "off"
        return model.device.type == "cuda" and may
    return config.overlap == "on"


def _proposer(
    config: EngineConfig,
    backend: Backend,
    drafting: Drafting,
    sizes: Sizes,
    isolation: Isolation,
) -> Proposer | None:
    part = backend.parts["speculative"]
    if config.speculate == "ngram":
        return NgramProposer(part.NgramIndex, isolation=isolation)
    if drafting.head is not None:
        return AheadProposer()
    if drafting.model is None:
        return None
    blocks = backend.parts["paged_cache"].BlockManager(sizes.num_blocks, config.block_size, 0)
    worker = make_draft_worker(config, backend, drafting.model, sizes)
    return ModelProposer(worker, part.DraftPlaces(blocks), isolation)


def _drafter(
    config: EngineConfig,
    parts: Parts,
    model: LoadedModel,
    cache: KVCacheManager,
    proposer: Proposer | None,
    on_verified: OnVerified | None,
    isolation: Isolation,
) -> Drafter:
    return Drafter(
        proposer,
        cache,
        parts["speculative"],
        token_budget=config.step_tokens(model.device.type),
        num_drafts=config.drafts,
        eos_token_ids=model.eos_token_ids,
        on_verified=on_verified,
        isolation=isolation,
    )


def _detokenizers(parts: Parts, tokenizer: Tokenizer) -> Callable[[], Detokenizer]:
    """What makes a detokenizer for each request."""
    is_reference = all(not part.is_yours for part in parts.table() if part.lab == "engine")
    if is_reference and tokenizer.joins_bytes:
        return partial(ByteDetokenizer, TokenTable(tokenizer.token_bytes))
    return partial(parts["engine"].Detokenizer, tokenizer.decode)


def _scheduler(
    config: EngineConfig, parts: Parts, cache: KVCacheManager, num_blocks: int, model: LoadedModel
) -> Scheduler:
    part = parts["scheduler"]
    kind = part.StaticScheduler if config.batching == "static" else part.Scheduler
    # Without chunks a prompt is computed whole, so the longest one must fit the budget.
    budget = config.step_tokens(model.device.type)
    if not config.chunked_prefill:
        budget = max(budget, model.max_length)
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
