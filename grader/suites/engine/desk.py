"""Scheduler and executor of a step loop in the fewest words, for crowds and for long runs.

Every request that is queued is in every plan, and draws token 0 or what it is given. Nothing is written
down, and nothing kept.
"""

from collections.abc import Callable, Sequence
from typing import Any

from solutions.engine import Detokenizer, StopChecker
from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus


class Desk:
    """requests: that are queued, by id, in the order in which they came."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}

    @property
    def num_running(self) -> int:
        return len(self.requests)

    num_waiting = 0

    def add(self, request: Request) -> None:
        self.requests[request.request_id] = request

    def schedule(self) -> StepPlan:
        return StepPlan([ScheduledRequest(r, 0, 1, [0], True) for r in self.requests.values()])

    def execute(self, plan: StepPlan) -> "Desk":
        return self

    def advance(self, plan: StepPlan) -> None:
        return None

    def result(self) -> StepOutcome:
        return StepOutcome([[0] for _ in self.requests])

    def update(self, plan: StepPlan, token_ids: Sequence[list[int]]) -> list[Request]:
        gained = list(self.requests.values())[: len(token_ids)]
        for request, tokens in zip(gained, token_ids, strict=False):
            request.token_ids += tokens
        return gained

    def finish(self, request: Request, reason: FinishReason) -> None:
        if self.requests.pop(request.request_id, None):  # twice is harmless
            request.status, request.finish_reason = RequestStatus.FINISHED, reason


def core_on(
    kind: type, desk: Desk, decode: Callable[[list[int]], str] = lambda ids: "a" * len(ids)
) -> Any:
    """A step loop without end-of-sequence tokens."""
    return kind(desk, desk, lambda: Detokenizer(decode), StopChecker, frozenset())


def queue(core: Any, name: str, prompt: Sequence[int] = (0,)) -> Request:
    """A request without end."""
    request = Request(name, list(prompt), SamplingParams(), max_tokens=1 << 30)
    core.add_request(request)
    return request
