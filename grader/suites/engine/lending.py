"""Tasks 7.3 to 7.5 are methods of one class. If one of them is written, it is graded: where the others
are still stubs, the reference's stand in."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from grader.submission import STUB
from solutions.engine import Detokenizer, EngineCore, StopChecker
from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

METHODS = {
    "7.3": ("_show", "_show_one", "_finish_reason"),
    "7.4": ("step", "take"),
    "7.5": ("abort",),
}


@cache
def core_class(kind: type, task: str) -> type:
    """The part's EngineCore, with the reference's methods for tasks other than `task` that are stubs.

    A part that has moved what is given around them gets nothing: there they would not fit.
    """
    own, lent = kind, set[str]()
    while missing := _met(kind) & METHODS.keys() - lent - {task}:
        lent |= missing
        methods = {name: getattr(EngineCore, name) for id in missing for name in METHODS[id]}
        kind = type("EngineCore", (kind,), methods)
    return own if lent and _met(kind) - {"", task} else kind


BROKEN = "broken"
LIFE: Sequence[Callable[[Any], Any]] = (lambda core: core.step(), lambda core: core.abort("r0"))


def _met(kind: type) -> set[str]:
    """What a short life runs into: the tasks of stubs, BROKEN for an error, "" for a good end."""
    return {_ends_with(kind, act) for act in LIFE}


def _ends_with(kind: type, act: Callable[[Any], Any]) -> str:
    try:
        act(_core(kind))
    except NotImplementedError as error:
        stub = STUB.match(str(error))
        return stub["task"] if stub else BROKEN
    except Exception:  # noqa: BLE001, a part may raise anything, and its tests will say so
        return BROKEN
    return ""


def _core(kind: type) -> Any:
    desk = _Desk()
    core = kind(desk, desk, lambda: Detokenizer(str), StopChecker, {9})
    core.add_request(Request("r0", [0], SamplingParams(), max_tokens=2))
    return core


class _Desk:
    """Scheduler and executor for one request at a time, in the fewest words."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    @property
    def num_running(self) -> int:
        return len(self._requests)

    num_waiting = 0

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def schedule(self) -> StepPlan:
        return StepPlan([ScheduledRequest(r, 0, 1, [0], True) for r in self._requests])

    def execute(self, plan: StepPlan) -> "_Desk":
        return self

    def advance(self, plan: StepPlan) -> None:
        return None

    def result(self) -> StepOutcome:
        return StepOutcome([[0] for _ in self._requests])

    def update(self, plan: StepPlan, token_ids: Sequence[list[int]]) -> list[Request]:
        for request, tokens in zip(self._requests, token_ids, strict=True):
            request.token_ids += tokens
        return list(self._requests)

    def finish(self, request: Request, reason: FinishReason) -> None:
        if request in self._requests:  # twice is harmless
            request.status, request.finish_reason = RequestStatus.FINISHED, reason
            self._requests.remove(request)
