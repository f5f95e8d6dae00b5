"""Scheduler, cache and toy model in one loop: the bench on which schedulers and step loops are tested.

    toy = Toy(Settings(num_blocks=6), part)     part.Scheduler on the reference's cache and FCFS queue
    toy.add([1, 2, 3], max_tokens=2)            r0, r1, ... by arrival
    toy.step()                                  begin, and take what there is; every invariant checked
    toy.run() == toy.expected()                 to the end, against a model without any cache

    toy.begin()                                 schedule, execute, advance
    toy.take()                                  read the oldest result, update, end what has enough

A failed check is a `Mismatch` with the script so far and the state around the last call. Its claim is
the check's own, since it may fail in a test that is about something else. The script is Python that
runs as it stands: each engine begins one of its own, and what a test does to it beside these calls it
writes down with `note`, as Python too. What drives the scheduler otherwise (a step loop under test) uses
`make`, `check_plan`, `executor` and `check`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from grader.kit.expect import Mismatch, claiming
from grader.kit.generate import is_passing_by
from grader.kit.script import current_script, note, start_script
from grader.kit.toy_checks import Advance, Update, check_order, check_plan, check_tokens_stay
from grader.kit.toy_model import (
    VOCAB,
    ToyExecutor,
    next_token,
    prefix_hashes,
    toy_drafts,
    toy_output,
)
from grader.kit.toy_parts import Flight, Settings, ToyParts
from grader.kit.toy_state import check_empty, check_state
from grader.kit.toy_words import NamedRequest, tell_add, tell_drawn, tell_plan, tell_state
from yaie.core.batch import StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request

PLAIN = SamplingParams()
"""Of all requests: they never change, and to check them takes a tenth of a test."""

__all__ = [
    "VOCAB",
    "FinishReason",
    "Settings",
    "Toy",
    "ToyExecutor",
    "next_token",
    "prefix_hashes",
    "toy_output",
]

Drafts = Mapping[Request, Sequence[int]]

FIRST_LINES = (
    "from grader.kit.toy import FinishReason, Settings, Toy",
    "import labs.scheduler as part",
)


class Toy(ToyParts):
    """See `ToyParts` for what it is made of."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._num_steps = 0
        self._call = ""  # that is being made and told
        self._came: list[str] = []  # of it, in words
        self._is_quiet = is_passing_by()
        if FIRST_LINES[0] in current_script().lines:
            start_script()  # another engine, another scenario
        for line in FIRST_LINES:
            note(line)
        if not self._is_quiet:
            note(f"toy = Toy({self.settings!r}, part)")

    # What happens to it.

    def make(
        self, prompt: Sequence[int], max_tokens: int = 1, *, priority: int = 0, n: int = 1
    ) -> list[Request]:
        """n siblings, each with a seed of its own; they are not queued yet."""
        siblings: list[Request] = []
        for index in range(n):
            siblings.append(
                NamedRequest(
                    f"r{len(self.requests)}",
                    list(prompt),
                    PLAIN,
                    seed=index,
                    priority=priority,
                    arrival=len(self.requests),
                    fork_of=siblings[0] if siblings else None,
                    index=index,
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
        with self.told(tell_add(siblings)):
            for request in siblings:
                self.scheduler.add(request)
        return siblings

    def finish(self, request: Request, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a request from outside."""
        given = "" if reason is FinishReason.ABORT else f", FinishReason.{reason.name}"
        with self.told(f"toy.finish({request.request_id}{given})"):
            self.scheduler.finish(request, reason)
            self.check()

    def step(self) -> StepPlan:
        """Begin a step, then take results until no more than `ahead` are left; checks all along."""
        with self.told("toy.step()"):
            plan = self.begin()
            # A step that computes nothing has nothing to be ahead of.
            most = self.settings.ahead if plan.scheduled else 0
            while len(self.in_flight) > most:
                self.take()
        return plan

    def begin(self, drafts: Drafts | None = None) -> StepPlan:
        """Schedule, execute, advance. drafts: to be verified; otherwise as `settings` say."""
        given = {} if drafts is None else {name: list(guess) for name, guess in drafts.items()}
        with self.told(f"toy.begin({given or ''})"):
            plan = self.schedule()
            self._add_drafts(plan, drafts)
            self._num_steps += 1
            del self._came[-1:]  # the plan, before its drafts were added
            self._tell(lambda: f"step {self._num_steps}: {tell_plan(plan)}")
            pending = self.executor.execute(plan)
            advance = Advance(self, plan)
            self.in_flight.append(Flight(self._num_steps, plan, pending))
            self.scheduler.advance(plan)
            advance.check()
            self.check()
        return plan

    def schedule(self) -> StepPlan:
        """The plan of a step, checked; nothing is computed yet."""
        known = {request: list(request.token_ids) for request in self.alive}
        with self.told("plan = toy.schedule()"):
            plan = self.scheduler.schedule()
            self._tell(lambda: tell_plan(plan))
            check_tokens_stay(known)
            check_order(plan)
            self.check_plan(plan, had_work=bool(known) and not self.in_flight)
        return plan

    def _add_drafts(self, plan: StepPlan, drafts: Drafts | None) -> None:
        """As an engine does between `schedule` and `advance`: guesses behind decodes, where they fit."""
        for item in plan.scheduled:
            request = item.request
            if not item.samples or item.num_tokens > 1:
                continue
            if request.is_finished or request.num_output_placeholders:
                continue
            guesses = toy_drafts(request, self.settings.drafts) if drafts is None else drafts.get(
                request, ()
            )  # fmt: skip
            num_tokens = 1 + len(guesses)
            if guesses and self.cache.allocate(request, item.start + num_tokens):
                item.num_tokens, item.drafts = num_tokens, guesses
                item.block_table = self.cache.block_table(request)
        if any(item.drafts for item in plan.scheduled):
            plan.copies += self.cache.take_moves()[2]

    def take(self) -> list[Request]:
        """Take over the oldest result, and end those that have enough; returns what `update` did."""
        flight = self.in_flight.pop(0)
        plan, results = flight.plan, iter(flight.pending.result().token_ids)
        tokens = [
            [] if item.request.finish_reason is FinishReason.ERROR else drawn
            for item, drawn in zip(
                (item for item in plan.scheduled if item.samples), results, strict=True
            )
        ]
        update = Update(self, plan, tokens)
        with self.told("toy.take()"):
            late = "" if flight.number == self._num_steps else f"result of step {flight.number}: "
            if plan.scheduled:
                self._tell(lambda: late + tell_drawn(plan, tokens))
            advanced = self.scheduler.update(plan, tokens)
            update.check(advanced)
            for request in advanced:
                if request.num_output_tokens >= request.max_tokens:
                    self.scheduler.finish(request, FinishReason.LENGTH)
                    self._tell(partial("{} ends".format, request.request_id))
            self.check()
        return advanced

    def run(self) -> list[list[int]]:
        """Step until all have ended and all results are read; returns the outputs by arrival."""
        # Every step that computes gains an output token, or moves the first in rank on.
        most_steps = sum(2 * (r.num_prompt_tokens + 2 * r.max_tokens + 1) for r in self.alive)
        for _ in range(most_steps):
            if not self.alive:
                break
            self.step()
        if names := [request.request_id for request in self.alive]:
            why = "Every step gains an output token, or computes a chunk of the first in rank."
            with claiming("Every request ends."):
                raise Mismatch(f"after {most_steps} steps {names} have not ended", why=why)
        while self.in_flight:
            self.take()
        return [request.output_token_ids for request in self.requests]

    @contextmanager
    def told(self, call: str) -> Iterator[None]:
        """A line in the script, and the state before and after it. Calls that are made within it have no
        line of their own."""
        if self._call or self._is_quiet:
            yield
            return
        script = current_script()
        script.before = tell_state(self)
        note(call)
        script.changed(partial(tell_state, self))
        self._call, self._came = call, []
        try:
            yield
        except BaseException:
            script.settle()
            raise
        finally:
            self._call = ""

    def _tell(self, came: Callable[[], str]) -> None:
        """What has come of the call, behind it in its line."""
        if self._is_quiet:
            return
        self._came.append(came())
        current_script().lines[-1] = f"{self._call}  # {'; '.join(self._came)}"

    # What must be so.

    def expected(self) -> list[list[int]]:
        """What `run` returns if no request is ended early."""
        return [
            toy_output(r.token_ids[: r.num_prompt_tokens], r.max_tokens, r.seed)
            for r in self.requests
        ]

    def check_plan(self, plan: StepPlan, had_work: bool) -> None:
        """A step computes something, within its limits, and each share is what it says.

        had_work: whether requests are alive and no step is in flight.
        """
        check_plan(self, plan, had_work)

    def check(self) -> None:
        """The parts' own checks, and what spans them."""
        check_state(self)

    def check_empty(self) -> None:
        """All have ended: no block is used beyond those that the tree keeps, on host or device."""
        check_empty(self)
