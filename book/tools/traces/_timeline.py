"""What the figures about time share: a scheduler is run without a model, and its plans are noted.

Nothing is decided here. `yaie.explore.timeline.play` lets the jobs arrive, a `Watched` scheduler passes
every call on to the one under it, and what is noted is read from plans, requests and blocks.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from book.tools.traces import Part
from yaie.core.batch import StepPlan
from yaie.core.contracts import BlockManager, Scheduler
from yaie.core.request import FinishReason, Request
from yaie.explore.timeline import Job, Step, play

BLOCK_SIZE = 16

# The running example (book/README.md): prompt and answer of its requests, in tokens.
FOUR = {"A": (48, 30), "B": (47, 34), "C": (47, 22), "D": (47, 57)}


@dataclass(frozen=True, slots=True)
class Share:
    """A request's part of a step: it computes [start, start + num_tokens) of the `known` tokens.

    draws: whether it gains a token by it. blocks: its table, in the order of its tokens.
    """

    start: int
    num_tokens: int
    known: int
    draws: bool
    blocks: tuple[int, ...]


@dataclass(slots=True)
class Moment:
    """The state after a step was planned, before it is computed.

    shares: by name, in the order of the plan. kept: blocks that stand in no table but hold content
    (the tree's). on_host: blocks in the host pool, by name. out, back: blocks moved there and back.
    """

    step: Step = field(default_factory=Step)
    shares: dict[str, Share] = field(default_factory=dict)
    kept: tuple[int, ...] = ()
    on_host: dict[str, int] = field(default_factory=dict)
    out: int = 0
    back: int = 0


class Watched:
    """A scheduler that notes what another one decides."""

    def __init__(self, under: Scheduler, blocks: BlockManager) -> None:
        self._under = under
        self._blocks = blocks
        self._requests: list[Request] = []
        self.moments: list[Moment] = []
        self.token_budget = under.token_budget

    def add(self, request: Request) -> None:
        self._requests.append(request)
        self._under.add(request)

    def schedule(self) -> StepPlan:
        plan = self._under.schedule()
        tables = [self._blocks.get_physical_blocks(r.request_id) for r in self._requests]
        in_tables = {block for table in tables for block in table}
        held = (b for b in range(self._blocks.num_blocks) if self._blocks.ref_count(b) > 0)
        swapped = {
            r.request_id: self._blocks.num_swapped_blocks(r.request_id) for r in self._requests
        }
        self.moments.append(
            Moment(
                shares={
                    item.request.request_id: Share(
                        item.start,
                        item.num_tokens,
                        item.request.num_tokens,
                        item.samples,
                        tuple(item.block_table),
                    )
                    for item in plan.scheduled
                },
                kept=tuple(block for block in held if block not in in_tables),
                on_host={name: blocks for name, blocks in swapped.items() if blocks},
                out=len(plan.swap_out),
                back=len(plan.swap_in),
            )
        )
        return plan

    def advance(self, plan: StepPlan) -> None:
        self._under.advance(plan)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        return self._under.update(plan, token_ids)

    def finish(self, request: Request, reason: FinishReason) -> None:
        self._under.finish(request, reason)

    @property
    def num_running(self) -> int:
        return self._under.num_running

    @property
    def num_waiting(self) -> int:
        return self._under.num_waiting

    def check(self) -> None:
        self._under.check()


def run(
    part: Part,
    jobs: Sequence[Job],
    *,
    kind: str = "Scheduler",
    num_blocks: int = 256,
    host_blocks: int = 0,
    max_num_seqs: int = 8,
    token_budget: int = 256,
    chunked_prefill: bool = True,
    swap: bool = False,
) -> list[Moment]:
    """Every step that a scheduler needs for these jobs, first come first served.

    kind: the scheduler's class in its package, such as StaticScheduler.
    """
    memory: ModuleType = part("paged_cache")
    package: ModuleType = part("scheduler")
    blocks = memory.BlockManager(num_blocks, BLOCK_SIZE, host_blocks)
    cache = memory.KVCacheManager(blocks, part("radix_tree").RadixTree(BLOCK_SIZE))
    scheduler = getattr(package, kind)(
        cache,
        package.POLICIES["fcfs"](cache),
        max_num_seqs=max_num_seqs,
        token_budget=token_budget,
        chunked_prefill=chunked_prefill,
        swap=swap,
    )
    watched = Watched(scheduler, blocks)
    for moment, step in zip(watched.moments, play(watched, cache, jobs), strict=True):
        moment.step = step
    return watched.moments


def listed(names: Collection[str]) -> str:
    """ "A", "A and B", "A, B and C", in alphabetical order."""
    *most, last = sorted(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def count(number: int, noun: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
