"""Lab 7's loop, and the makers of its text, such that what one request raises ends that request alone.

See `isolation.py` for what else concerns a single request.
"""

from collections.abc import Callable, Sequence

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, EngineCore, Scheduler, StopChecker
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request
from yaie.engine.step.isolation import Isolation


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
