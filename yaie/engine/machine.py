"""`Machine`: the assembled engine. `build.py` makes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from yaie.core.batch import KVLayerSpec
from yaie.core.config import Graphs
from yaie.core.contracts import (
    BlockManager,
    KVCacheManager,
    RadixTree,
    Scheduler,
    Worker,
)
from yaie.engine.drafting.drafts import Drafts
from yaie.engine.step.hooks import Hooks
from yaie.engine.step.isolated import IsolatingCore
from yaie.engine.step.pacer import StepPacer
from yaie.worker.build import Sizes

T = TypeVar("T")


@dataclass(slots=True)
class Machine:
    """The assembled engine: control above, a worker below.

    core: what `step` goes through, from the outside in: `IsolatingCore`, lab 17's `OverlappedLoop` where
        steps overlap, lab 7's `EngineCore`. Around it all, for learners' parts: `RecoveringMachine`.
    blocks, tree: what the cache was given; for those who watch. No tree where its entries are no blocks
        (`yaie.engine.windows`).
    note: how it computes decode steps, or "". graphs_again: the setting that makes another machine
        compute them alike, without a trial and without a wait.
    kv_layers: of the pool, one for each layer. hooks: what hangs on the step loop, and drafts: what of
    it drafts. token_budget: of a step.
    """

    core: IsolatingCore
    scheduler: Scheduler
    cache: KVCacheManager
    blocks: BlockManager
    tree: RadixTree | None
    worker: Worker
    sizes: Sizes
    note: str
    graphs_again: Graphs
    kv_layers: list[KVLayerSpec]
    hooks: Hooks
    drafts: Drafts
    token_budget: int

    def reset_prefix_cache(self) -> int:
        """See `KVCacheManager`."""
        return self.cache.reset_prefix_cache()

    def follow_grammars(self) -> None:
        """Draft what grammars force, from now on."""
        self.drafts.follow_grammars()

    def pace(self, limit: float) -> None:
        """Have steps take at most so many seconds while prompts are computed beside requests that
        generate."""
        self.hooks.observers.append(StepPacer(self.scheduler, self.token_budget, limit))

    def guarded(self, call: Callable[[], T]) -> T:
        """What `call` returns, which calls parts of the machine between two steps."""
        return call()
