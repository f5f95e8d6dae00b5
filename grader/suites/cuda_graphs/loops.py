"""A loop under test: lab 7's core and lab 6's scheduler around it, and an executor that watches it.

bench = LoopBench(part)
bench.say([1, 2, 3], max_tokens=4)
bench.step()                        one call of loop.step
bench.run()                         until has_work is false
bench.calls                         "schedule 1", "execute 1", "advance 1", ..., as they came
"""

from collections.abc import Sequence
from typing import Any

from grader.kit import expect, note, start_script
from grader.kit.expect import Mismatch, claiming
from grader.kit.toy import Settings, Toy
from grader.kit.toy_model import ToyExecutor, ToyStep, toy_output
from solutions.engine import Detokenizer, EngineCore, StopChecker
from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

EOS = 3
MOST_STEPS, MOST_IDLE = 300, 4
"""Calls of `step` until all have ended; in a row, without sending, reading or telling anything."""

IN_ORDER = (
    "The worker carries steps out in the order in which they are sent. That alone keeps blocks safe: "
    "what a result sets free may be given to another request by a later plan, and a step that was "
    "planned before still writes it. Send each plan before the next one is made."
)
EMPTY = (
    "`execute` is called for each plan, in order. An empty one ends at once: it is not in flight, and "
    "nothing has to be waited for."
)
ADVANCED = (
    "`advance` is called once for each plan, before the next `schedule`, as the scheduler's contract "
    "says."
)
ENDED = (
    "It ended with a result that was taken over after this plan was made, and its blocks are given "
    "back. Make the plan from what is known when it is sent: schedule and execute follow each other, "
    "and no result is taken over between them."
)
MASKS = (
    "A grammar must have seen the token before. So the masks of a step are sent when the outcomes of "
    "all steps before it are taken over; for a step with nothing in flight before it, at once."
)
ENDLESS = (
    "When nothing is left to send, the steps in flight are taken over, one a call; a plan of nothing is "
    "not in flight."
)
FORGOTTEN = "has_work is true while a step is in flight: its tokens have not been read."


def unsent(number: int) -> str:
    """Why the masks of a step must be sent before the next step is."""
    return (
        f"Step {number} draws when its masks are sent: it has not drawn yet. Step {number + 1} reads "
        "the token that it draws."
    )


class WatchedScheduler:
    """Lab 6's, whose calls are noted. fail: requests that its next plan says can never run."""

    def __init__(self, bench: "LoopBench") -> None:
        self._bench = bench
        self._scheduler = bench.toy.scheduler
        self.fail: list[Request] = []
        self.copies: list[tuple[int, int]] = []

    def schedule(self) -> StepPlan:
        for request in self.fail:
            self._scheduler.finish(request, FinishReason.ERROR)
            request.error = "it can never run"
        plan = self._scheduler.schedule()
        plan.failed += self.fail
        self.fail = []
        plan.copies += self.copies
        self.copies = []
        self._bench.planned(plan)
        return plan

    def advance(self, plan: StepPlan) -> None:
        self._bench.call("advance", plan)
        self._scheduler.advance(plan)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        if self._bench.is_known(plan):
            self._bench.call("update", plan)
        return self._scheduler.update(plan, token_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


class WatchedStep:
    """See `yaie.core.contracts.graphs.SentStep`."""

    def __init__(self, bench: "LoopBench", plan: StepPlan, step: ToyStep, masked: bool) -> None:
        self._bench = bench
        self._plan = plan
        self._step = step
        self.waits = masked

    def send_masks(self) -> None:
        if self.waits:
            self._bench.masks(self._plan)
            self.waits = False

    def result(self) -> StepOutcome:
        self.send_masks()
        self._bench.call("result", self._plan)
        return self._step.result()


class LoopBench:
    """outputs: all that the loop has returned. calls: of scheduler and executor, with the plan's number.
    masked: request ids whose draws wait for masks."""

    def __init__(self, part: Any, settings: Settings | None = None, *, plain: bool = False) -> None:
        self.toy = Toy(settings or Settings())
        start_script()
        note(f"a loop on an engine with {self.toy.settings}")
        self.calls: list[str] = []
        self.outputs: list[RequestOutput] = []
        self.masked: set[str] = set()
        self.sent: list[WatchedStep] = []
        self._plans: list[StepPlan] = []
        self._taken: set[int] = set()
        self._advanced: set[int] = set()
        self._num_sent = 0
        self.scheduler = WatchedScheduler(self)
        self._inner: ToyExecutor = self.toy.executor
        self.core = EngineCore(
            self.scheduler, self, lambda: Detokenizer(str), StopChecker, frozenset({EOS})
        )
        self.loop = self.core if plain else part.OverlappedLoop(self.core, self.scheduler, self)

    # What the loop calls.

    def planned(self, plan: StepPlan) -> None:
        if self._plans:
            self.expect_advanced(len(self._plans))
        self._plans.append(plan)
        self.call("schedule", plan)

    def expect_advanced(self, number: int) -> None:
        problem, why = f"plan {number} was not advanced", ADVANCED
        if self._plans[number - 1].is_empty:
            problem, why = f"{problem}; it holds nothing", why + " An empty plan is no exception."
        with claiming("Each plan is advanced before the next one is made."):
            expect(number in self._advanced, problem, why=why)

    def expect_sent(self, numbers: Sequence[int]) -> None:
        """None of these plans is left out for being empty."""
        empty = [number for number in numbers if self._plans[number - 1].is_empty]
        if empty:
            with claiming("Each plan is executed, one that holds nothing too."):
                problem = f"plan {empty[0]} holds nothing, and is executed all the same"
                raise Mismatch(problem, f"execute {empty[0]}", "no such call", EMPTY)

    def execute(self, plan: StepPlan) -> WatchedStep:
        number = self._number(plan)
        with claiming(
            "Steps are sent in the order of their plans, and hold only requests that run."
        ):
            if number > self._num_sent + 1:
                self.expect_sent(range(self._num_sent + 1, number))
            ended = [x.request.request_id for x in plan.scheduled if x.request.is_finished]
            expect(not ended, f"step {number} is sent with {ended}, which have ended", why=ENDED)
            expect(
                number == self._num_sent + 1,
                f"step {number} is sent when {self._num_sent} were sent of {len(self._plans)} planned",
                why=IN_ORDER,
            )
            if self.sent and self.sent[-1].waits:
                raise Mismatch(
                    f"step {number} is sent, and step {number - 1} may not draw yet",
                    why=unsent(number - 1),
                )
        self.call("execute", plan)
        self._num_sent = number
        masked = any(x.samples and x.request.request_id in self.masked for x in plan.scheduled)
        self.sent.append(WatchedStep(self, plan, self._inner.execute(plan), masked))
        return self.sent[-1]

    def masks(self, plan: StepPlan) -> None:
        number = self._number(plan)
        with claiming("Masks follow the tokens before them."):
            missing = self._not_taken(self._plans[: number - 1])
            expect(
                not missing,
                f"the masks of step {number} are sent, and the outcomes of steps {missing} "
                "are not taken over",
                why=MASKS,
            )
        self.call("masks", plan)

    def call(self, name: str, plan: StepPlan) -> None:
        if name == "update":
            self._taken.add(self._number(plan))
        if name == "advance":
            self._advanced.add(self._number(plan))
        self.calls.append(f"{name} {self._number(plan)}")
        shown = ", ".join(
            f"{x.request.request_id}@{x.start}+{x.num_tokens}" for x in plan.scheduled
        )
        note(self.calls[-1] + (f": {shown}" if name == "schedule" else ""))

    def _not_taken(self, plans: Sequence[StepPlan]) -> list[int]:
        """Which of the first plans have an outcome that is not taken over."""
        return [
            number
            for number, plan in enumerate(plans, 1)
            if not plan.is_empty and number not in self._taken
        ]

    def is_known(self, plan: StepPlan) -> bool:
        return any(plan is one for one in self._plans)

    def _number(self, plan: StepPlan) -> int:
        for number, one in enumerate(self._plans, 1):
            if one is plan:
                return number
        raise Mismatch("a plan is used that schedule() did not return", why=IN_ORDER)

    # What a test calls.

    def say(self, prompt: Sequence[int], max_tokens: int, *, masked: bool = False) -> Request:
        (request,) = self.toy.make(prompt, max_tokens)
        if masked:
            self.masked.add(request.request_id)
        note(
            f"loop.add_request({request.request_id})  # prompt {list(prompt)}, {max_tokens} tokens"
        )
        self.loop.add_request(request)
        return request

    def step(self) -> list[RequestOutput]:
        note("loop.step()")
        outputs = self.loop.step()
        if not isinstance(outputs, list):
            raise Mismatch("step() returned no list", "a list of outputs", f"{outputs!r:.60}")
        self.outputs += outputs
        note(f"    # -> {[_told(output) for output in outputs]}")
        return outputs

    def run(self) -> None:
        idle = 0
        for _ in range(MOST_STEPS):
            if not self.loop.has_work:
                break
            before = self._progress()
            self.step()
            idle = 0 if self._progress() != before else idle + 1
            problem = f"has_work is true, and {idle} calls of step() sent, read and told nothing"
            expect(idle < MOST_IDLE, problem, why=ENDLESS)
        else:
            expect(False, f"has_work is still true after {MOST_STEPS} steps", why=ENDLESS)
        if self._num_sent < len(self._plans):
            self.expect_sent(range(self._num_sent + 1, len(self._plans) + 1))
        if self._plans:
            self.expect_advanced(len(self._plans))
        alive = [r.request_id for r in self.toy.alive]
        expect(not alive, f"has_work is false, and {alive} have not ended", why=FORGOTTEN)
        late = self._not_taken(self._plans)
        expect(
            not late,
            f"has_work is false, and the outcomes of steps {late} were never taken over",
            why=FORGOTTEN,
        )

    def _progress(self) -> tuple[int, int, int]:
        """Plans that were sent and those taken over, empty ones left out, and outputs."""
        sent = sum(not plan.is_empty for plan in self._plans[: self._num_sent])
        taken = sum(not self._plans[number - 1].is_empty for number in self._taken)
        return sent, taken, len(self.outputs)

    def tokens(self, request: Request) -> list[int]:
        """What its outputs told."""
        return [t for o in self.outputs if o.request_id == request.request_id for t in o.token_ids]

    def expected(self, request: Request) -> list[int]:
        """What it generates alone, up to the token that ends it."""
        prompt = request.token_ids[: request.num_prompt_tokens]
        whole = toy_output(prompt, request.max_tokens, request.seed)
        return whole[: whole.index(EOS) + 1] if EOS in whole else whole


def _told(output: RequestOutput) -> str:
    end = "" if output.finish_reason is None else " ends"
    return f"{output.request_id} {output.token_ids}{end}"
