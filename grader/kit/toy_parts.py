"""What the toy engine is made of: its settings, its parts, its requests, and the steps in flight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import solutions.scheduler as reference
from grader.kit.toy_cache import ToyCache
from grader.kit.toy_model import ToyExecutor, ToyStep
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.batch import StepPlan
from yaie.core.contracts import Scheduler, SchedulingPolicy
from yaie.core.request import Request

Policies = Mapping[str, Callable[[Any], SchedulingPolicy]]


@dataclass(repr=False)
class Settings:
    """A small engine. swap: to the host blocks, if there are any. static: batches filled once.

    ahead: steps whose results are not read yet when the next one is planned. drafts: guesses for each
    decode, some of them right.
    """

    num_blocks: int = 16
    block_size: int = 4
    num_host_blocks: int = 0
    swap: bool = True
    max_num_seqs: int = 4
    token_budget: int = 16
    chunked_prefill: bool = True
    watermark: int = 0
    policy: str = "fcfs"
    prefix_caching: bool = True
    static: bool = False
    ahead: int = 0
    drafts: int = 0

    def __str__(self) -> str:
        """In words: the pool, and what is not as usual."""
        return ", ".join(f"{name} {value}" for name, value in self._told().items())

    def __repr__(self) -> str:
        """The same as Python."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._told().items())})"

    def _told(self) -> dict[str, Any]:
        """The settings that a reader of a script needs."""
        usual = Settings()
        first = ("num_blocks", "block_size")
        names = [n for n in vars(usual) if n in first or getattr(self, n) != getattr(usual, n)]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Flight:
    """A step whose result has not been read. number: of the step, from 1."""

    number: int
    plan: StepPlan
    pending: ToyStep


@dataclass
class ToyParts:
    """part: the package with `Scheduler` and `StaticScheduler`. policies: its POLICIES, or another's.

    in_flight: steps without a result, the oldest first.
    """

    settings: Settings = field(default_factory=Settings)
    part: Any = reference
    policies: Policies = field(default_factory=lambda: reference.POLICIES)
    requests: list[Request] = field(default_factory=list)
    in_flight: list[Flight] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.settings
        self.blocks = BlockManager(s.num_blocks, s.block_size, s.num_host_blocks)
        self.tree = RadixTree(s.block_size) if s.prefix_caching else None
        self.cache = ToyCache(self.blocks, self.tree)
        self.executor = ToyExecutor(s.block_size)
        self.policy = self.policies[s.policy](self.cache)
        kind = self.part.StaticScheduler if s.static else self.part.Scheduler
        self.scheduler: Scheduler = kind(
            self.cache,
            self.policy,
            max_num_seqs=s.max_num_seqs,
            token_budget=s.token_budget,
            chunked_prefill=s.chunked_prefill,
            swap=s.swap and s.num_host_blocks > 0,
            watermark=s.watermark,
        )

    @property
    def alive(self) -> list[Request]:
        return [request for request in self.requests if not request.is_finished]
