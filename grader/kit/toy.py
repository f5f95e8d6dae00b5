"""Scheduler, cache and toy model in one loop: the bench on which schedulers and step loops are tested.

    toy = Toy(Settings(num_blocks=6), part)     part.Scheduler on the reference's cache and FCFS queue
    toy.add([1, 2, 3], max_tokens=2)            r0, r1, ... by arrival
    toy.step()                                  schedule, run, update, finish; every invariant checked
    toy.run() == toy.expected()                 to the end, against a model without any cache

A failed check is a `Mismatch` with the script so far and the state around the last call. Who drives the
scheduler otherwise (a step loop under test) uses `make`, `check_plan`, `runner.run` and `check`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import solutions.scheduler as reference
from grader.kit.expect import Mismatch
from grader.kit.script import current_script, note
from grader.kit.toy_checks import Gains, check_empty, check_plan, check_state, check_tokens_stay
from grader.kit.toy_model import VOCAB, ToyRunner, next_token, prefix_hashes, toy_output
from grader.kit.toy_words import NamedRequest, tell_plan, tell_request, tell_state
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from yaie.core.batch import StepPlan
from yaie.core.contracts import Scheduler, SchedulingPolicy
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request

__all__ = [
    "VOCAB",
    "Settings",
    "Toy",
    "ToyRunner",
    "next_token",
    "prefix_hashes",
    "toy_output",
]

Policies = Mapping[str, Callable[[Any], SchedulingPolicy]]


@dataclass
class Settings:
    """A small engine. swap: to the host blocks, if there are any. static: batches filled once."""

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

    def __str__(self) -> str:
        """The settings that a reader of a script needs: the pool, and what is not as usual."""
        usual = Settings()
        names = ["num_blocks", "block_size"]
        names += [
            n for n in vars(usual) if n not in names and getattr(self, n) != getattr(usual, n)
        ]
        return ", ".join(f"{name} {getattr(self, name)}" for name in names)


@dataclass
class Toy:
    """part: the package with `Scheduler` and `StaticScheduler`. policies: its POLICIES, or another's."""

    settings: Settings = field(default_factory=Settings)
    part: Any = reference
    policies: Policies = field(default_factory=lambda: reference.POLICIES)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.settings
        self.blocks = BlockManager(s.num_blocks, s.block_size, s.num_host_blocks)
        self.tree = RadixTree(s.block_size) if s.prefix_caching else None
        self.cache = KVCacheManager(self.blocks, self.tree)
        self.runner = ToyRunner(s.block_size)
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
        note(f"an engine with {s}")

    # What happens to it.

    def make(
        self, prompt: Sequence[int], max_tokens: int = 1, *, priority: int = 0, n: int = 1
    ) -> list[Request]:
        """n siblings, each with a seed of its own; nobody has queued them yet."""
        siblings: list[Request] = []
        for index in range(n):
            siblings.append(
                NamedRequest(
                    f"r{len(self.requests)}",
                    list(prompt),
                    SamplingParams(),
                    seed=index,
                    priority=priority,
                    arrival=len(self.requests),
                    fork_of=siblings[0] if siblings else None,
                    max_tokens=max_tokens,
                )
            )
            self.requests.append(siblings[-1])
        return siblings

    def add(
        self, prompt: Sequence[int], max_tokens: int = 1, *, priority: int = 0, n: int = 1
    ) -> list[Request]:
        """Queue n siblings."""
        siblings = self.make(prompt, max_tokens, priority=priority, n=n)
        for request in siblings:
            note(f"add {tell_request(request)}")
            current_script().after = ""  # to be told anew when somebody needs it
            self.scheduler.add(request)
        return siblings

    def finish(self, request: Request, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a request from outside."""
        with self._told(f"finish {request.request_id} ({reason.value})"):
            self.scheduler.finish(request, reason)
            self.check()
        current_script().after = ""

    def step(self) -> StepPlan:
        """Schedule, run, update, end those that have enough; checks before and after."""
        plan = self.schedule()
        try:
            tokens = self.runner.run(plan)
        except Mismatch:
            current_script().after = tell_state(self)
            raise
        self.update(plan, tokens)
        return plan

    def schedule(self) -> StepPlan:
        """The plan of a step, checked; nothing is computed yet."""
        known = {request: list(request.token_ids) for request in self.alive}
        with self._told("step"):
            plan = self.scheduler.schedule()
            current_script().lines[-1] = f"step -> {tell_plan(plan)}"
            check_tokens_stay(known)
            self.check_plan(plan, had_work=bool(known))
        current_script().after = ""
        return plan

    def update(self, plan: StepPlan, tokens: Sequence[int]) -> list[Request]:
        """Take over the result of a step, and end those that have enough."""
        gains = Gains(plan, tokens)
        script = current_script()
        if not script.lines or not script.lines[-1].startswith("step"):
            note("update, with the result of that step")
            script.before = tell_state(self)
        try:
            advanced = self.scheduler.update(plan, tokens)
            gains.check(advanced)
            for request in advanced:
                if request.num_output_tokens >= request.max_tokens:
                    self.scheduler.finish(request, FinishReason.LENGTH)
                    script.lines[-1] += f"; {request.request_id} ends"
            self.check()
        finally:
            script.after = tell_state(self)
        return advanced

    def run(self) -> list[list[int]]:
        """Step until nobody is left; returns the outputs in the order of arrival."""
        # The first in rank gains a token in every step, whatever happens to the others.
        most_steps = sum(r.num_prompt_tokens + r.max_tokens + 1 for r in self.alive)
        for _ in range(most_steps):
            if not self.alive:
                break
            self.step()
        if names := [request.request_id for request in self.alive]:
            why = "The first in rank gains a token in every step, so there is an end for everybody."
            raise Mismatch(f"after {most_steps} steps {names} have not ended", why=why)
        return [request.output_token_ids for request in self.requests]

    @contextmanager
    def _told(self, line: str) -> Iterator[None]:
        """A line in the script, and the state before it and, should it fail, after it."""
        script = current_script()
        script.before = script.after or tell_state(self)
        note(line)
        try:
            yield
        except BaseException:
            script.after = tell_state(self)
            raise

    # What must be so.

    @property
    def alive(self) -> list[Request]:
        return [request for request in self.requests if not request.is_finished]

    def expected(self) -> list[list[int]]:
        """What `run` returns if nobody is ended early."""
        return [
            toy_output(r.token_ids[: r.num_prompt_tokens], r.max_tokens, r.seed)
            for r in self.requests
        ]

    def check_plan(self, plan: StepPlan, had_work: bool) -> None:
        """A step computes something, within its budget and seats, and each share is what it says."""
        check_plan(self, plan, had_work)

    def check(self) -> None:
        """The parts' own checks, and what spans them."""
        check_state(self)

    def check_empty(self) -> None:
        """Nobody is left: no block is used beyond those that the tree keeps, on host or device."""
        check_empty(self)
