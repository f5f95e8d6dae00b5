"""Puts the parts together: each is handed what it needs, none looks for it."""

from collections.abc import Callable, Sequence

import torch

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig, Graphs
from yaie.core.contracts import (
    BlockManager,
    EngineCore,
    KVCacheManager,
    Proposer,
    RadixTree,
    Scheduler,
    Worker,
)
from yaie.engine.asks.base import Vocabulary
from yaie.engine.drafting.drafter import Drafter
from yaie.engine.drafting.drafts import Drafts
from yaie.engine.drafting.lookahead import AheadProposer
from yaie.engine.drafting.models import ModelProposer
from yaie.engine.drafting.ngrams import NgramProposer
from yaie.engine.drafting.room import Room
from yaie.engine.machine import Machine
from yaie.engine.step.counters import Counters
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.executor import StepExecutor
from yaie.engine.step.explaining import parts_in_steps
from yaie.engine.step.hooks import Hooks, StepObserver
from yaie.engine.step.isolated import IsolatingCore, TextIsolation
from yaie.engine.step.isolation import Isolation
from yaie.engine.step.request_texts import Detokenizers
from yaie.models.loader import LoadedModel
from yaie.parts import Parts
from yaie.worker.build import Drafting, Sizes, make_draft_worker, make_worker, sizes_for
from yaie.worker.parallel.executor import RankExecutor
from yaie.worker.parallel.ranked_worker import RankedWorker
from yaie.worker.threaded import ThreadedWorker
from yaie.worker.windows import Held


def build(
    config: EngineConfig,
    backend: Backend,
    model: LoadedModel,
    counters: Counters | None = None,
    wrap_worker: Callable[[Worker], Worker] | None = None,
    drafting: Drafting | None = None,
    ranks: RankExecutor | None = None,
    observers: Sequence[StepObserver] = (),
    held: Held | None = None,
) -> Machine:
    """Cache, scheduler and step loop for a loaded model, and the worker that they send steps to.

    counters: of plans, and of drafts. wrap_worker: what to put in front of the worker. drafting: what
    makes drafts, if `config.speculate` needs it. ranks: those that hold the rest of the model.
    observers: hang on the step loop. held: what requests hold, if blocks behind a window go back.
    """
    drafting = drafting or Drafting()
    sizes = sizes_for(config, backend, model, drafting, held)
    if ranks is not None:
        sizes = ranks.agree(sizes, model.dtype)
    parts = backend.parts
    tree: RadixTree | None = None
    hooks = Hooks()
    if config.prefix_caching:
        tree = parts["radix_tree"].RadixTree(config.block_size)
    if tree is not None and model.adapter.state_layers:
        tree = _checkpointed(parts, tree, sizes, hooks)
    if held is None:
        memory = parts["paged_cache"]
        blocks: BlockManager = memory.BlockManager(
            sizes.num_blocks, config.block_size, sizes.num_host_blocks
        )
        cache: KVCacheManager = memory.KVCacheManager(blocks, tree)
    else:
        from yaie.engine.windows.build import make_caches

        cache, blocks, tree = make_caches(config, parts, sizes, held, tree)
    scheduler = _scheduler(config, parts, cache, sizes, model)
    inner = make_worker(config, backend, model, sizes, drafting.head, held)
    overlapped = overlaps(config, model)
    threaded = overlapped and model.device.type == "cpu"
    worker: Worker = ThreadedWorker(inner, torch.get_num_threads()) if threaded else inner
    if ranks is not None:
        ranks.begin()
        worker = RankedWorker(worker, ranks)
    if wrap_worker is not None:
        worker = wrap_worker(worker)
    vocab_size = model.adapter.vocab_size
    isolation = Isolation(parts if parts_in_steps(parts) else None)
    vocabulary = Vocabulary(vocab_size, model.eos_token_ids)
    encoder = StepEncoder(sizes.num_seats, vocabulary, isolation)
    if held is not None and held.full:
        from yaie.engine.windows.build import make_encoder

        encoder = make_encoder(cache, held, sizes.num_seats, vocabulary, isolation)
    counters = counters or Counters()
    token_budget = config.step_tokens(model.device.type)
    # States are settled when a step's result is read, before the next step.
    takes_back = not (model.adapter.state_layers and overlapped)
    room = _room(config, parts, cache, token_budget, model, hooks)
    drafts = Drafts(hooks, room, isolation, counters.verified, takes_back=takes_back)
    if (proposer := _proposer(config, backend, drafting, sizes, isolation)) is not None:
        drafter = Drafter(
            proposer,
            room,
            parts["speculative"],
            isolation,
            num_drafts=config.drafts,
            eos_token_ids=model.eos_token_ids,
        )
        drafts.guess(drafter)
    hooks.stages.append(counters)
    hooks.observers.extend(observers)
    executor = StepExecutor(worker, encoder, vocab_size, hooks, isolation)
    engine = parts["engine"]
    detokenizers = Detokenizers(parts, model.tokenizer)
    texts = TextIsolation(isolation, scheduler, detokenizers, engine.StopChecker)
    loop: EngineCore = engine.EngineCore(
        scheduler,
        executor,
        texts.detokenizer,
        texts.stop_checker,
        model.eos_token_ids,
    )
    if overlapped:
        loop = parts["cuda_graphs"].OverlappedLoop(loop, scheduler, executor)
    graphs: Graphs = "off" if inner.runner is None else "lazy"
    if config.graphs == "padded":
        graphs = "padded"
    return Machine(
        core=IsolatingCore(loop, scheduler, isolation, texts),
        scheduler=scheduler,
        cache=cache,
        blocks=blocks,
        tree=tree,
        worker=worker,
        sizes=sizes,
        note=inner.note,
        graphs_again=graphs,
        kv_layers=model.adapter.kv_layers,
        hooks=hooks,
        drafts=drafts,
        token_budget=token_budget,
    )


def _checkpointed(parts: Parts, tree: RadixTree, sizes: Sizes, hooks: Hooks) -> RadixTree:
    """The tree of a model that keeps states: requests go on where one was kept, which `hooks` see to."""
    from yaie.engine.states.awaited import AwaitedCheckpoints
    from yaie.engine.states.stage import CheckpointStage
    from yaie.engine.states.tree import CheckpointedTree

    part, count = parts["state_cache"], sizes.num_checkpoints
    checkpoints = AwaitedCheckpoints(part.Checkpoints(sizes.num_seats + 1, count), count)
    hooks.stages.append(CheckpointStage(tree, checkpoints, part.cut_share))
    return CheckpointedTree(tree, checkpoints)


def _room(
    config: EngineConfig,
    parts: Parts,
    cache: KVCacheManager,
    token_budget: int,
    model: LoadedModel,
    hooks: Hooks,
) -> Room:
    if not model.adapter.state_layers:
        return Room(cache, parts["speculative"], token_budget)
    from yaie.engine.states.room import RoomBesideStates

    part, stages = parts["speculative"], list(hooks.stages)
    return RoomBesideStates(cache, part, token_budget, stages, config.drafts)


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


def _scheduler(
    config: EngineConfig, parts: Parts, cache: KVCacheManager, sizes: Sizes, model: LoadedModel
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
        max_num_seqs=min(config.max_num_seqs, sizes.num_seats // 2),
        token_budget=budget,
        chunked_prefill=config.chunked_prefill,
        swap=config.preemption == "swap",
        watermark=int(config.watermark * sizes.num_blocks),
    )
    return scheduler
