"""Runs a scheduler without a model, and draws what it decided, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes

from yaie.core.contracts import KVCacheManager, Scheduler
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.explore.draw import BLUE, GREY, INK, ORANGE, PALE, RED, board, box, name_rows

MOST_STEPS = 200
LEGEND = {"prompt, or once more": BLUE, "output": ORANGE, "waits": PALE, "preempted": RED}
WASTED = {"ended, still computed": PALE}


@dataclass(frozen=True, slots=True)
class Job:
    """A request to come: prompt and output in tokens, and the step at which it arrives."""

    name: str
    prompt: int
    output: int
    arrives: int = 0
    priority: int = 0


@dataclass(slots=True)
class Step:
    """tokens: computed for each request that ran, by name. output: of those, who only went on.
    wasted: who had ended and was computed all the same."""

    tokens: dict[str, int] = field(default_factory=dict)
    output: set[str] = field(default_factory=set)
    wasted: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    preempted: set[str] = field(default_factory=set)
    swapped: int = 0
    used_blocks: int = 0


def play(scheduler: Scheduler, cache: KVCacheManager, jobs: Sequence[Job]) -> list[Step]:
    """Let jobs arrive and the scheduler decide, until all have their output.

    A model that is not there says token 0 each time; no prompt begins like another.
    """
    requests = {job.name: _request(number, job) for number, job in enumerate(jobs)}
    steps: list[Step] = []
    while not all(request.is_finished for request in requests.values()):
        if len(steps) >= MOST_STEPS:
            raise RuntimeError(f"after {MOST_STEPS} steps some requests have not ended")
        now = len(steps)
        for job in jobs:
            if job.arrives == now:
                scheduler.add(requests[job.name])
        here = [requests[job.name] for job in jobs if job.arrives <= now]
        steps.append(_step(scheduler, cache, here))
    return steps


def _request(number: int, job: Job) -> Request:
    token_ids = [1000 * (number + 1) + index for index in range(job.prompt)]
    return Request(
        job.name,
        token_ids,
        SamplingParams(),
        priority=job.priority,
        arrival=number,
        max_tokens=job.output,
    )


def _step(scheduler: Scheduler, cache: KVCacheManager, here: list[Request]) -> Step:
    step = Step()
    plan = scheduler.schedule()
    step.preempted = {request.request_id for request in plan.preempted}
    step.swapped = len(plan.swap_out) + len(plan.swap_in)
    for item in plan.scheduled:
        name = item.request.request_id
        step.tokens[name] = item.num_tokens
        if item.start >= item.request.num_prompt_tokens:
            step.output.add(name)
        if item.request.is_finished:
            step.wasted.add(name)
    step.used_blocks = cache.stats()["used_blocks"]
    scheduler.advance(plan)
    for request in scheduler.update(plan, [[0] for item in plan.scheduled if item.samples]):
        if request.num_output_tokens >= request.max_tokens:
            scheduler.finish(request, FinishReason.LENGTH)
    alive = {request.request_id for request in here if not request.is_finished}
    step.waiting = alive - step.tokens.keys()
    return step


def draw(
    ax: Axes, steps: Sequence[Step], jobs: Sequence[Job], title: str = "", *, width: int = 0
) -> None:
    """A row for each request, a column for each step; the number is how many tokens it computes.

    width: in steps, to draw several to the same scale.
    """
    board(ax, max(width, len(steps)), len(jobs) + 1, title)
    name_rows(ax, [job.name for job in jobs])
    for column, step in enumerate(steps):
        for row, job in enumerate(jobs):
            _cell(ax, column, row, job.name, step)
        if column % 5 == 0:
            ax.text(column + 0.5, len(jobs) + 0.5, str(column), ha="center", va="center",
                    color=INK, fontsize=8)  # fmt: skip
    ax.text(-0.3, len(jobs) + 0.5, "step", ha="right", va="center")


def _cell(ax: Axes, x: int, y: int, name: str, step: Step) -> None:
    if name in step.wasted:
        box(ax, x, y, "", PALE, hatch="////", edge=GREY, line=0.6)
    elif name in step.tokens:
        box(ax, x, y, step.tokens[name], ORANGE if name in step.output else BLUE)
    elif name in step.preempted:
        box(ax, x, y, "!", RED)
    elif name in step.waiting:
        box(ax, x, y, "", PALE)


def summary(steps: Sequence[Step]) -> str:
    """What the picture adds up to."""
    computed = sum(sum(step.tokens.values()) for step in steps)
    wasted = sum(len(step.wasted) for step in steps)
    return f"{len(steps)} steps, {computed} tokens computed, {wasted} of them for nothing"
