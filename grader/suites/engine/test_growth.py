"""What a token costs does not grow with the text so far, nor with requests that are not in the step."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import task
from grader.kit.growth import expect_growth
from grader.suites.engine.lending import core_class
from solutions.engine import Detokenizer, StopChecker
from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

TEXT = (
    "A long answer has thousands of tokens. What is decoded, compared or copied again for each of them "
    "costs the square of its length: keep the few tokens or letters that can still matter."
)
OTHERS = (
    "The step loop runs between two steps of the model. It looks at the requests of the plan; where "
    "another one is needed, it is found by its name."
)


@task("7.1")
def test_a_token_costs_the_same_behind_any_text(part: ModuleType) -> None:
    """push costs the same behind 64 tokens and behind 256."""

    def behind(n: int) -> Callable[[], Any]:
        detokenizer = part.Detokenizer(lambda ids: "".join(chr(97 + token % 26) for token in ids))
        for token in range(n):
            detokenizer.push(token)
        return partial(detokenizer.push, n)

    expect_growth(part, "push of one token", "tokens before it", behind, why=TEXT)


@task("7.2")
def test_a_letter_costs_the_same_behind_any_text(part: ModuleType) -> None:
    """push costs the same behind 64 words and behind 256."""

    def behind(n: int) -> Callable[[], Any]:
        checker = part.StopChecker(["END", "STOP HERE"])
        for _ in range(n):
            checker.push("STOP ")
        return partial(checker.push, "STOP ")

    expect_growth(part, "push of five letters", "such pieces before it", behind, why=TEXT)


class Desk:
    """A scheduler that plans one request alone, an executor that draws a token for it."""

    def __init__(self, part: ModuleType, task_id: str, others: int, said: int = 0) -> None:
        self.core = core_class(part.EngineCore, task_id)(
            self, self, lambda: Detokenizer(lambda ids: "a" * len(ids)), StopChecker, {9}
        )
        self.requests = [
            Request(f"r{number}", [1, 2], SamplingParams(), max_tokens=100_000)
            for number in range(others + 1)
        ]
        for request in self.requests:
            self.core.add_request(request)
        self.runs = self.requests[0]
        for _ in range(said):
            self.core.take(self.schedule(), self.result())

    @property
    def num_running(self) -> int:
        return sum(request.status is RequestStatus.RUNNING for request in self.requests)

    num_waiting = 0

    def add(self, request: Request) -> None:
        request.status = RequestStatus.RUNNING

    def schedule(self) -> StepPlan:
        return StepPlan(
            [ScheduledRequest(self.runs, self.runs.num_tokens - 1, 1, [0], samples=True)]
        )

    def execute(self, plan: StepPlan) -> "Desk":
        return self

    def advance(self, plan: StepPlan) -> None:
        self.runs.num_computed_tokens += 1

    def result(self) -> StepOutcome:
        return StepOutcome([[5]])

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        self.runs.token_ids.extend(token_ids[0])
        return [self.runs]

    def finish(self, request: Request, reason: FinishReason) -> None:
        request.status = RequestStatus.FINISHED


@task("7.3")
def test_new_tokens_cost_what_they_are(part: ModuleType) -> None:
    """The text of a step's tokens costs as many pushes, whatever the request has said before."""

    def behind(n: int) -> Callable[[], Any]:
        desk = Desk(part, "7.3", others=0, said=n)
        return partial(desk.core.take, desk.schedule(), desk.result())

    expect_growth(part, "take of one token", "tokens said before", behind, memory=False, why=TEXT)


@task("7.4")
def test_a_step_costs_the_requests_of_its_plan(part: ModuleType) -> None:
    """A step with one request costs the same, however many are alive."""
    expect_growth(
        part, "step with one request", "other requests",
        lambda n: Desk(part, "7.4", others=n).core.step, why=OTHERS,
    )  # fmt: skip
