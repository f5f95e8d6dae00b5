"""Tasks 7.3 to 7.5 are methods of one class. Who has written one of them is graded on it: where the
others are still stubs, the reference's stand in."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from grader.submission import STUB
from solutions.engine import Detokenizer, EngineCore, StopChecker
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

METHODS = {"7.3": ("_advance", "_finish_reason"), "7.4": ("step",), "7.5": ("abort",)}


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
    core = kind(desk, desk, desk, lambda: Detokenizer(str), StopChecker, {9})
    core.add_request(Request("r0", [0], SamplingParams(), max_tokens=2))
    return core


class _Desk:
    """Scheduler, runner and sampler for one request at a time, in the fewest words."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def schedule(self) -> StepPlan:
        return StepPlan([ScheduledRequest(r, 0, 1, [0], [0], True) for r in self._requests])

    def run(self, plan: StepPlan) -> Tensor:
        return torch.zeros(len(plan.scheduled), 4)

    def sampling_batch(self, requests: Sequence[Request]) -> None:
        return None

    def sample(self, logits: Tensor, batch: object) -> Tensor:
        return logits.argmax(dim=-1)

    def update(self, plan: StepPlan, token_ids: Sequence[int]) -> list[Request]:
        for request, token in zip(self._requests, token_ids, strict=True):
            request.token_ids.append(token)
        return list(self._requests)

    def finish(self, request: Request, reason: FinishReason) -> None:
        request.status, request.finish_reason = RequestStatus.FINISHED, reason
        self._requests.remove(request)
