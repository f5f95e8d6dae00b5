"""Lab 7's loop, and the makers of its text, such that what one request raises ends that request alone.

See `isolation.py` for what else concerns a single request.
"""

from collections.abc import Callable, Sequence
from typing import Any

from yaie.core.contracts import Detokenizer, EngineCore, Scheduler, StopChecker
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request
from yaie.engine.step.isolation import Isolation
from yaie.engine.step.late_stops import stop_checker
from yaie.engine.step.request_texts import Detokenizers, ShowsStops


class TextIsolation:
    """Makes detokenizers and stop checkers whose errors end their own request: while it is added, which
    is when lab 7's core asks for them."""

    def __init__(
        self,
        isolation: Isolation,
        scheduler: Scheduler,
        detokenizers: Detokenizers,
        make_checker: Callable[[Sequence[str]], StopChecker],
    ) -> None:
        """make_checker: lab 7's."""
        self.request: Request | None = None  # that is being added
        self._isolation = isolation
        self._scheduler = scheduler
        self._detokenizers = detokenizers
        self._make_checker = make_checker

    def detokenizer(self) -> Detokenizer:
        """That of the request."""
        request = self.request
        assert request is not None, "a request is added through IsolatingCore"
        params, made = request.params, self._detokenizers
        is_usual = params.skip_special_tokens and not params.include_stop_str_in_output
        return IsolatedText(made.usual() if is_usual else made.special(request), "", request, self)

    def stop_checker(self, stops: Sequence[str], min_tokens: int = 0) -> StopChecker:
        """Likewise."""
        assert self.request is not None
        make = self._make_checker
        own = stop_checker(make, stops, min_tokens) if min_tokens else make(stops)
        if self.request.params.include_stop_str_in_output:
            own = ShowsStops(own)
        return IsolatedText(own, ("", None), self.request, self)

    def fail(self, request: Request, error: BaseException) -> None:
        """It ends here, before the core can: should this be its last token, nothing of it is filed."""
        self._isolation.fail(request, error)
        self._scheduler.finish(request, FinishReason.ERROR)


class IsolatedText:
    """A detokenizer or a stop checker: see `yaie.core.contracts`."""

    __slots__ = ("_nothing", "_own", "_request", "_texts")

    def __init__(self, own: Any, nothing: Any, request: Request, texts: TextIsolation) -> None:
        """nothing: what `push` returns where the own one raises."""
        self._own = own
        self._nothing = nothing
        self._request = request
        self._texts = texts

    def push(self, piece: Any) -> Any:
        """See the contract."""
        try:
            return self._own.push(piece)
        except BaseException as error:  # noqa: BLE001, see NOT_THE_REQUESTS
            self._texts.fail(self._request, error)
            return self._nothing

    def flush(self) -> str:
        """See the contract."""
        try:
            text: str = self._own.flush()
        except BaseException as error:  # noqa: BLE001
            self._texts.fail(self._request, error)
            return ""
        return text


class IsolatingCore:
    """A step loop (see `yaie.core.contracts.EngineCore`), behind whose steps failed requests end.

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
