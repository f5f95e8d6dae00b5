"""Another right step loop: those that have ended leave the table at the end of the step.

What failed is ended at the scheduler whether that has done so already or not, and new tokens are read
off the request's own list one by one.
"""

import time
from collections.abc import Callable, Collection

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request


class _Live:
    """A request with its makers of text."""

    __slots__ = ("checker", "detokenizer", "num_taken", "request")

    def __init__(
        self,
        request: Request,
        make_detokenizer: Callable[[], Detokenizer],
        make_stop_checker: Callable[..., StopChecker],
    ) -> None:
        self.request, self.num_taken = request, 0
        params = request.params
        late = {"min_tokens": params.min_tokens} if params.min_tokens else {}
        self.checker = make_stop_checker(params.stop, **late)
        self.detokenizer = make_detokenizer()


class EngineCore:
    """See `yaie.core.contracts.EngineCore`."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        make_detokenizer: Callable[[], Detokenizer],
        make_stop_checker: Callable[..., StopChecker],
        eos_token_ids: Collection[int],
    ) -> None:
        self._scheduler, self._executor = scheduler, executor
        self._makers = make_detokenizer, make_stop_checker
        self._eos_token_ids = eos_token_ids
        self._table: dict[str, _Live] = {}

    has_work = property(lambda self: any(self._table))

    def add_request(self, request: Request) -> None:
        """Queue it, if its id is free."""
        if self._table.get(request.request_id) is not None:
            raise InvalidRequestError("request_id is in use", param="request_id")
        live = _Live(request, *self._makers)
        self._scheduler.add(request)
        self._table[request.request_id] = live

    def abort(self, request_id: str) -> bool:
        """Now."""
        live = self._table.get(request_id)
        if live is not None:
            self._scheduler.finish(live.request, FinishReason.ABORT)
            del self._table[request_id]
        return live is not None

    def step(self) -> list[RequestOutput]:
        """One after the other."""
        pending = self._executor.execute(plan := self._scheduler.schedule())
        self._scheduler.advance(plan)
        return self.take(plan, pending.result())

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """What came of a plan."""
        lost = [*plan.failed]
        lost += [request for request in outcome.failed if not request.is_finished]
        for request in lost:
            self._scheduler.finish(request, FinishReason.ERROR)  # twice is harmless
        outputs = [RequestOutput.of(request, "", [], FinishReason.ERROR) for request in lost]
        for request in self._scheduler.update(plan, outcome.token_ids):
            request.first_token_time = request.first_token_time or time.monotonic()
            outputs.append(self._show(self._table[request.request_id]))
        for output in outputs:
            if output.finish_reason is not None:
                del self._table[output.request_id]
        return outputs

    def _show(self, live: _Live) -> RequestOutput:
        request, said = live.request, []
        begin = request.num_prompt_tokens + live.num_taken
        reason = None
        while reason is None and request.num_prompt_tokens + live.num_taken < len(
            request.token_ids
        ):
            token_id = request.token_ids[request.num_prompt_tokens + live.num_taken]
            live.num_taken += 1
            reason = self._reason(live, token_id)
            text, reason = self._text(live, token_id, reason)
            said.append(text)
        request.drop_last(request.num_output_tokens - live.num_taken)
        tokens = request.token_ids[begin:]
        if reason is not None:
            self._scheduler.finish(request, reason)
        return RequestOutput.of(request, "".join(said), tokens, reason)

    def _reason(self, live: _Live, token_id: int) -> FinishReason | None:
        params = live.request.params
        if token_id in params.stop_token_ids:
            live.request.stop_reason = token_id
            return FinishReason.STOP
        if not params.ignore_eos and token_id in self._eos_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if live.num_taken == live.request.max_tokens else None

    def _text(
        self, live: _Live, token_id: int, reason: FinishReason | None
    ) -> tuple[str, FinishReason | None]:
        piece = "" if reason is FinishReason.STOP else live.detokenizer.push(token_id)
        text, stop = live.checker.push(piece)
        if reason is not None and stop is None:
            more, stop = live.checker.push(live.detokenizer.flush())
            text += more
        if stop is None:
            return (text if reason is None else text + live.checker.flush()), reason
        live.request.stop_reason = stop
        return text, FinishReason.STOP
