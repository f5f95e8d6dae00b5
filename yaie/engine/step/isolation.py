"""What one request raises ends that request, and nothing else.

Calls that concern a single request go through an `Isolation` once they can fail. It notes which requests
did, and `IsolatingCore` (`isolated.py`) ends them behind the step.

    proposing    text that a grammar forces, n-grams, a request's place in the draft model's cache
    encoding     what the worker is told of a request; who cannot be encoded leaves the plan
    masking      what a grammar allows next
    reporting    detokenizer, stop strings, log-probabilities, hidden states

Scheduler, cache, forward pass and sampler are shared. After an exception in one of them no request's
state can be trusted, so those end the engine, or all that had started (`recovery.py`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from yaie.core.batch import ScheduledRequest
from yaie.core.errors import EngineDeadError
from yaie.core.request import FailureKind, Request
from yaie.engine.step.explaining import explained
from yaie.parts import Parts
from yaie.worker.faults import fault_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOT_THE_REQUESTS = (KeyboardInterrupt, EngineDeadError)
"""Passed on. Everything else counts, also what is no Exception: a panic in Rust, a SystemExit."""


class Isolation:
    """The requests of one machine that failed by themselves since the last step.

    failed: why, in words and by kind. Nearly always there is none.
    """

    def __init__(self, parts: Parts | None = None) -> None:
        """parts: in use, if a learner's are among them: then it is told which failed, and where."""
        self._parts = parts
        self.failed: dict[Request, tuple[str, FailureKind]] = {}

    def call(
        self,
        request: Request,
        otherwise: T,
        work: Callable[..., T],
        *args: Any,
        kind: FailureKind = FailureKind.ENGINE,
    ) -> T:
        """What `work(*args)` returns, which concerns this request alone. If it raises, the request
        fails, and this returns `otherwise`, as it does from then on without a call.

        kind: of the failure, where the reference is to blame.
        """
        if request in self.failed:
            return otherwise
        try:
            return work(*args)
        except BaseException as error:  # noqa: BLE001, see NOT_THE_REQUESTS
            self.fail(request, error, kind)
            return otherwise

    def without_failing(
        self,
        items: list[ScheduledRequest],
        work: Callable[[Sequence[ScheduledRequest]], T],
        error: BaseException,
    ) -> T:
        """`work(items)`, which raised this error, without those for which it raises alone: they fail and
        are taken off the list.

        work: changes nothing, and does for several what it does for each. Raises what it raises for
        none of them alone.
        """
        if isinstance(error, NOT_THE_REQUESTS):
            raise error
        for item in items:
            self.call(item.request, None, work, [item])
        self.take_off(items)
        return work(items)

    def take_off(self, items: list[ScheduledRequest]) -> None:
        """Drop the shares of those that have failed."""
        items[:] = [item for item in items if item.request not in self.failed]

    def fail(
        self, request: Request, error: BaseException, kind: FailureKind = FailureKind.ENGINE
    ) -> None:
        """Note that this request raised an error. The first one counts; of one that is over, none."""
        if isinstance(error, NOT_THE_REQUESTS):
            raise error
        if request in self.failed or request.is_finished:
            return
        logger.error("request %s failed alone", request.request_id, exc_info=error)
        parts = self._parts
        if parts and (kind is FailureKind.ENGINE or fault_of(error, parts).lab):
            self.failed[request] = explained(error, parts), FailureKind.PART
        else:
            self.failed[request] = _SENTENCES[kind].format(type(error).__name__), kind

    def rows(self, items: Sequence[ScheduledRequest]) -> list[int]:
        """Which of these belong to requests that have failed."""
        return [row for row, item in enumerate(items) if item.request in self.failed]

    def note(self, request: Request) -> None:
        """Say on a request that has failed why."""
        request.error, request.failure = self.failed[request]

    def take(self) -> list[Request]:
        """Those that failed since the last call."""
        failed = list(self.failed)
        for request in failed:
            self.note(request)
        self.failed.clear()
        return failed


_SENTENCES = {
    FailureKind.ENGINE: (
        "the engine failed on this request alone ({0}): its log has the details. Other requests go on."
    ),
    FailureKind.CONSTRAINT: (
        "the output cannot be kept to its grammar: following it failed ({0}). Ask for a simpler one."
    ),
}
