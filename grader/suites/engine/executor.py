"""What stands around a step loop under test: a scheduler that is watched, and an executor that draws
what a script says. Both write down how they are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.kit import expect
from grader.kit.expect import claiming
from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.logprobs import TokenLogprob
from yaie.core.request import FailureKind, FinishReason, Request

EOS = 256
NAN = -1
DOT = (ord(".") - ord("a")) % 256

Script = Sequence[int]

FIRST_EXECUTE = (
    "execute reads the requests as the plan found them. advance moves them on, to where the next plan "
    "starts."
)
FIRST_ADVANCE = (
    "result waits for the device. advance needs no token of it, and until advance is called the "
    "scheduler cannot plan the next step: call it while the device computes."
)
ONE_BY_ONE = (
    "Every plan is executed once, advanced once and updated once, in the order of the plans."
)


@dataclass(slots=True)
class Record:
    """How scheduler and executor were called. strict: a wrong order is a Mismatch, for task 7.4.

    calls: their names, in order. stages: of each plan, by its id, the last call that it was part of.
    """

    strict: bool = False
    calls: list[str] = field(default_factory=list)
    stages: dict[int, str] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)  # kept alive, so that ids stay theirs

    def note(self, call: str, plan: StepPlan, after: str, why: str) -> None:
        """A call with a plan that must have come through `after` last."""
        self.calls.append(call)
        stage = self.stages.get(id(plan), "nothing")
        if self.strict:
            with claiming(ONE_BY_ONE):
                expect(
                    stage == after,
                    f"`{call}` was called for a plan that had come as far as `{stage}`, not `{after}`",
                    why=why,
                )
        self.stages[id(plan)] = call


class WatchedScheduler:
    """The reference's scheduler, whose plans may get more.

    copies: moves for the next plan. guess: the drafts that a request's next decode is to verify;
    guess_at_once: the last step of its prompt too. left: the output tokens that each request had when
    this was told of its end.
    """

    def __init__(self, scheduler: Any, cache: Any, record: Record) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._record = record
        self.copies: list[tuple[int, int]] = []
        self.guess: Callable[[Request], Sequence[int]] | None = None
        self.guess_at_once = False
        self.left: dict[Request, list[int]] = {}

    def schedule(self) -> StepPlan:
        plan: StepPlan = self._scheduler.schedule()
        plan.copies += self.copies
        self.copies = []
        if self.guess is not None:
            for item in plan.scheduled:
                self._draft(item, self.guess(item.request))
            plan.copies += self._cache.take_moves()[2]
        self._record.plans.append(plan)
        self._record.calls.append("schedule")
        self._record.stages[id(plan)] = "schedule"
        return plan

    def _draft(self, item: ScheduledRequest, drafts: Sequence[int]) -> None:
        request = item.request
        is_decode = item.num_tokens == 1 and item.start >= request.num_prompt_tokens
        verifies = item.samples and (is_decode or self.guess_at_once)
        # A draft follows on the last token, so that must be known.
        if not drafts or not verifies or request.num_output_placeholders or request.is_finished:
            return
        if self._cache.allocate(request, request.num_tokens + len(drafts)):
            item.num_tokens += len(drafts)
            item.drafts = tuple(drafts)
            item.block_table = self._cache.block_table(request)

    def advance(self, plan: StepPlan) -> None:
        self._record.note("advance", plan, "execute", FIRST_EXECUTE)
        self._scheduler.advance(plan)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        self._record.note("update", plan, "result", ONE_BY_ONE)
        gained: list[Request] = self._scheduler.update(plan, token_ids)
        return gained

    def finish(self, request: Request, reason: FinishReason) -> None:
        self.left.setdefault(request, request.output_token_ids)
        self._scheduler.finish(request, reason)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


class ScriptedExecutor:
    """Draws for each request what its script says, and dots after that.

    scripts: by request id; NAN in one is a row of logits that is not finite. sick: requests whose every
    row is broken. num_moves: blocks that plans have moved.
    """

    def __init__(self, scripts: Mapping[str, Script], record: Record) -> None:
        self._scripts = scripts
        self._record = record
        self.sick: set[Request] = set()
        self.num_moves = 0

    def execute(self, plan: StepPlan) -> "ScriptedStep":
        self._record.note("execute", plan, "schedule", FIRST_EXECUTE)
        self.num_moves += len(plan.swap_out) + len(plan.swap_in) + len(plan.copies)
        outcome = StepOutcome()
        for item in plan.scheduled:
            drawn = self._draw(item) if item.samples else []
            if NAN in drawn:
                self.sick.add(item.request)
            if item.request in self.sick:
                outcome.failed.append(item.request)
                drawn = []
            if item.samples:
                outcome.token_ids.append(drawn)
        return ScriptedStep(plan, outcome, self._record)

    def _draw(self, item: ScheduledRequest) -> list[int]:
        """The next token, and one more for each draft that was right before."""
        index = item.start + item.num_tokens - len(item.drafts) - item.request.num_prompt_tokens
        drawn = [self.said(item.request, index)]
        for draft in item.drafts:
            following = self.said(item.request, index + len(drawn))
            if draft != drawn[-1] or following == NAN:
                break
            drawn.append(following)
        return drawn

    def said(self, request: Request, index: int) -> int:
        """Output token `index` of a request."""
        script = self._scripts[request.request_id]
        return script[index] if index < len(script) else DOT


class ScriptedStep:
    """A plan that is being carried out. Its outcome is there once it was asked for."""

    def __init__(self, plan: StepPlan, outcome: StepOutcome, record: Record) -> None:
        self._plan = plan
        self._outcome = outcome
        self._record = record

    def result(self) -> StepOutcome:
        self._record.note("result", self._plan, "advance", FIRST_ADVANCE)
        for request in self._outcome.failed:
            request.error = request.error or "the model computed NaN or infinity"
            request.failure = request.failure or FailureKind.CORRUPTED
        sampling = [item.request for item in self._plan.scheduled if item.samples]
        for request, drawn in zip(sampling, self._outcome.token_ids, strict=True):
            if request.params.logprobs is not None:
                request.logprobs += [TokenLogprob(token, -1.0) for token in drawn]
        return self._outcome
