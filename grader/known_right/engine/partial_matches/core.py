"""Another right step loop: whether there is work is what the scheduler says.

Live requests are found by id, and what makes their text by the request, in a table with weak keys.
Whether there is work is the scheduler's own count. What was shown is counted by the request's tokens.
"""

import time
from collections.abc import Callable, Collection, Iterator
from weakref import WeakKeyDictionary

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request


class _Text:
    """Of one request."""

    def __init__(self, detokenizer: Detokenizer, checker: StopChecker) -> None:
        self.detokenizer, self.checker = detokenizer, checker
        self.num_tokens = 0


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
        self.scheduler, self.executor = scheduler, executor
        self.make_detokenizer, self.make_stop_checker = make_detokenizer, make_stop_checker
        self.eos = frozenset(eos_token_ids)
        self.requests: dict[str, Request] = {}
        self.texts: WeakKeyDictionary[Request, _Text] = WeakKeyDictionary()

    @property
    def has_work(self) -> bool:
        """By the scheduler's queues."""
        return self.scheduler.num_running > 0 or self.scheduler.num_waiting > 0

    def add_request(self, request: Request) -> None:
        """Queue it."""
        if request.request_id in self.requests:
            raise InvalidRequestError(f"{request.request_id!r} is taken", param="request_id")
        least = request.params.min_tokens
        late = {"min_tokens": least} if least else {}
        checker = self.make_stop_checker(request.params.stop, **late)
        text = _Text(self.make_detokenizer(), checker)
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        self.texts[request] = text

    def abort(self, request_id: str) -> bool:
        """End it, if it is there."""
        if request_id not in self.requests:
            return False
        self._end(self.requests[request_id], FinishReason.ABORT)
        return True

    def _end(self, request: Request, reason: FinishReason) -> None:
        """At the scheduler and here."""
        self.scheduler.finish(request, reason)
        self._forget(request)

    def _forget(self, request: Request) -> None:
        del self.requests[request.request_id]
        self.texts.pop(request)

    def step(self) -> list[RequestOutput]:
        """One step."""
        plan = self.scheduler.schedule()
        waiting = self.executor.execute(plan)
        self.scheduler.advance(plan)
        outcome = waiting.result()
        return self.take(plan, outcome)

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """What came of a plan."""
        return [*self._failures(plan, outcome), *self._gains(plan, outcome)]

    def _failures(self, plan: StepPlan, outcome: StepOutcome) -> Iterator[RequestOutput]:
        for request in plan.failed:
            self._forget(request)
            yield RequestOutput.of(request, "", [], FinishReason.ERROR)
        for request in outcome.failed:
            if self.requests.get(request.request_id) is request:
                self._end(request, FinishReason.ERROR)
                yield RequestOutput.of(request, "", [], FinishReason.ERROR)

    def _gains(self, plan: StepPlan, outcome: StepOutcome) -> Iterator[RequestOutput]:
        for request in self.scheduler.update(plan, outcome.token_ids):
            if request.first_token_time is None:
                request.first_token_time = time.monotonic()
            yield self._shown(request, self.texts[request])

    def _shown(self, request: Request, text: _Text) -> RequestOutput:
        first = request.num_prompt_tokens + text.num_tokens
        shown: list[str] = []
        reason = None
        for at in range(first, len(request.token_ids)):
            text.num_tokens += 1
            piece, reason = self._one(request, text, request.token_ids[at])
            shown.append(piece)
            if reason is not None:
                request.drop_last(len(request.token_ids) - at - 1)
                break
        tokens = request.token_ids[first:]
        if reason is not None:
            self._end(request, reason)
        return RequestOutput.of(request, "".join(shown), tokens, reason)

    def _one(self, request: Request, text: _Text, token_id: int) -> tuple[str, FinishReason | None]:
        """A token's text, and the reason if it is the last one."""
        params = request.params
        is_stop = token_id in params.stop_token_ids
        is_mute = is_stop or (token_id in self.eos and not params.ignore_eos)
        is_last = is_mute or text.num_tokens >= request.max_tokens
        piece, found = text.checker.push("" if is_mute else text.detokenizer.push(token_id))
        if is_last and found is None:
            rest, found = text.checker.push(text.detokenizer.flush())
            piece += rest
        if found is not None:
            request.stop_reason = found
            return piece, FinishReason.STOP
        if is_last:
            piece += text.checker.flush()
            request.stop_reason = token_id if is_stop else request.stop_reason
            return piece, FinishReason.STOP if is_mute else FinishReason.LENGTH
        return piece, None
