"""What one request raises ends that request, and nothing else.

Calls that concern a single request go through an `Isolation`. It notes which requests failed, and
`IsolatingCore` ends them behind the step.

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

from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, EngineCore, Scheduler, StopChecker
from yaie.core.errors import EngineDeadError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request
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

    def each(
        self, items: list[ScheduledRequest], work: Callable[[Sequence[ScheduledRequest]], T]
    ) -> T:
        """`work(items)`, without those for which it raises: they fail and are taken off the list.

        work: changes nothing, and does for several what it does for each. Raises what it raises for
        none of them alone.
        """
        if self.failed:
            self.take_off(items)
        try:
            return work(items)
        except NOT_THE_REQUESTS:
            raise
        except BaseException:  # noqa: BLE001
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


class TextIsolation:
    """Detokenizers and stop checkers whose errors end their own request. Made while a request is added,
    which is when lab 7's core asks for them."""

    def __init__(self, isolation: Isolation, scheduler: Scheduler) -> None:
        self.request: Request | None = None  # that is being added
        self._isolation = isolation
        self._scheduler = scheduler

    def detokenizers(
        self, make: Callable[[], Detokenizer], special: Callable[[Request], Detokenizer]
    ) -> Callable[[], Detokenizer]:
        """What makes them, of what makes the part's own. special: makes that of a request whose text is
        to have more than usual."""

        def made() -> Detokenizer:
            request = self.request
            assert request is not None, "a request is added through IsolatingCore"
            params = request.params
            is_usual = params.skip_special_tokens and not params.include_stop_str_in_output
            return IsolatedDetokenizer(make() if is_usual else special(request), request, self)

        return made

    def stop_checkers(
        self,
        make: Callable[[Sequence[str]], StopChecker],
        late: Callable[[Sequence[str], int], StopChecker],
        special: Callable[[StopChecker], StopChecker],
    ) -> Callable[..., StopChecker]:
        """Likewise. late: makes that of a request with `min_tokens`. special: stands around that of a
        request whose text is to have more than usual."""

        def made(stops: Sequence[str], min_tokens: int = 0) -> StopChecker:
            request = self.request
            assert request is not None
            own = late(stops, min_tokens) if min_tokens else make(stops)
            if request.params.include_stop_str_in_output:
                own = special(own)
            return IsolatedStopChecker(own, request, self)

        return made

    def fail(self, request: Request, error: BaseException) -> None:
        """It ends here, before the core can: should this be its last token, nothing of it is filed."""
        self._isolation.fail(request, error)
        self._scheduler.finish(request, FinishReason.ERROR)


class IsolatedDetokenizer:
    """See `yaie.core.contracts.Detokenizer`."""

    __slots__ = ("_own", "_request", "_texts")

    def __init__(self, own: Detokenizer, request: Request, texts: TextIsolation) -> None:
        self._own = own
        self._request = request
        self._texts = texts

    def push(self, token_id: int) -> str:
        """See the contract."""
        try:
            return self._own.push(token_id)
        except BaseException as error:  # noqa: BLE001, see NOT_THE_REQUESTS
            self._texts.fail(self._request, error)
            return ""

    def flush(self) -> str:
        """See the contract."""
        try:
            return self._own.flush()
        except BaseException as error:  # noqa: BLE001
            self._texts.fail(self._request, error)
            return ""


class IsolatedStopChecker:
    """See `yaie.core.contracts.StopChecker`."""

    __slots__ = ("_own", "_request", "_texts")

    def __init__(self, own: StopChecker, request: Request, texts: TextIsolation) -> None:
        self._own = own
        self._request = request
        self._texts = texts

    def push(self, text: str) -> tuple[str, str | None]:
        """See the contract."""
        try:
            return self._own.push(text)
        except BaseException as error:  # noqa: BLE001, see NOT_THE_REQUESTS
            self._texts.fail(self._request, error)
            return "", None

    def flush(self) -> str:
        """See the contract."""
        try:
            return self._own.flush()
        except BaseException as error:  # noqa: BLE001
            self._texts.fail(self._request, error)
            return ""


class IsolatingCore:
    """See `yaie.core.contracts.EngineCore`: a step loop, behind whose steps failed requests end.

    inner: lab 7's loop, or the overlapped one.
    """

    def __init__(
        self, inner: EngineCore, scheduler: Scheduler, isolation: Isolation, texts: TextIsolation
    ) -> None:
        self.inner = inner
        self._scheduler = scheduler
        self._isolation = isolation
        self._texts = texts

    @property
    def has_work(self) -> bool:
        """See the contract."""
        return self.inner.has_work

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return self._scheduler.num_waiting

    def add_request(self, request: Request) -> None:
        """See the contract."""
        self._texts.request = request
        try:
            self.inner.add_request(request)
        finally:
            self._texts.request = None

    def abort(self, request_id: str) -> bool:
        """See the contract."""
        return self.inner.abort(request_id)

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """See the contract."""
        return self.inner.take(plan, outcome)

    def step(self) -> list[RequestOutput]:
        """See the contract."""
        outputs = self.inner.step()
        if self._isolation.failed:
            for request in self._isolation.take():
                self._end(request, outputs)
        return outputs

    def _end(self, request: Request, outputs: list[RequestOutput]) -> None:
        """End a request that failed in this step, and tell it in place of what the step brought it."""
        if request.is_finished and request.finish_reason is not FinishReason.ERROR:
            return  # it came to its end before the call that failed could matter
        self._scheduler.finish(request, FinishReason.ERROR)  # harmless where that is done
        self.inner.abort(request.request_id)  # or the loop would wait for it
        outputs[:] = [one for one in outputs if one.request_id != request.request_id]
        outputs.append(RequestOutput.of(request, "", [], FinishReason.ERROR))
