"""The step loop with a coroutine for each request: it takes the tokens of a step and gives text, and its
end is the request's.

The reference has one object for a live request and decides about its end in methods of the core. Here
all that a request remembers is local to its coroutine.
"""

import time
from collections.abc import Callable, Collection, Generator

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

Said = tuple[str, FinishReason | None]
Stream = Generator[Said, int, None]


def stream(
    request: Request, detokenizer: Detokenizer, checker: StopChecker, eos: Collection[int]
) -> Stream:
    """Send it a token, get text and, with the last token, the reason."""
    reason: FinishReason | None = None
    text, count = "", 0
    while reason is None:
        token_id = yield text, reason
        count += 1
        stopped = token_id in request.params.stop_token_ids
        mute = stopped or (token_id in eos and not request.params.ignore_eos)
        enough = count == request.max_tokens
        parts = [] if mute else [detokenizer.push(token_id)]
        if mute or enough:
            parts.append(detokenizer.flush())
        text, found = "", None
        for part in parts:
            if found is None:
                shown, found = checker.push(part)
                text += shown
        if found is None and (mute or enough):
            text += checker.flush()
        reason = FinishReason.LENGTH if enough else None
        if mute or found is not None:
            reason = FinishReason.STOP
            request.stop_reason = found or (token_id if stopped else None)
    yield text, reason


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
        self.streams: dict[Request, Stream] = {}
        self.told: dict[Request, int] = {}

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return len(self.streams) > 0

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequestError if one with its id is alive."""
        if self._find(request.request_id) is not None:
            raise InvalidRequestError(f"{request.request_id} is in use", param="request_id")
        least = {"min_tokens": request.params.min_tokens} if request.params.min_tokens else {}
        checker = self.make_stop_checker(request.params.stop, **least)
        started = stream(request, self.make_detokenizer(), checker, self.eos)
        next(started)
        self.streams[request] = started
        self.told[request] = 0
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        request = self._find(request_id)
        if request is not None:
            self._end(request, FinishReason.ABORT)
        return request is not None

    def step(self) -> list[RequestOutput]:
        """One step for every request that the scheduler picks; returns what each one gained."""
        plan = self.scheduler.schedule()
        pending = self.executor.execute(plan)
        self.scheduler.advance(plan)
        return self.take(plan, pending.result())

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """What a plan has failed, what has failed in its step, and what the others gained."""
        broken = [r for r in (*plan.failed, *outcome.failed) if r in self.streams]
        outputs = [self._broken(request) for request in broken]
        return outputs + [self._gain(r) for r in self.scheduler.update(plan, outcome.token_ids)]

    def _gain(self, request: Request) -> RequestOutput:
        if request.first_token_time is None:
            request.first_token_time = time.monotonic()
        pieces, reason, told = [], None, self.told[request]
        begin = request.num_prompt_tokens + told
        for token_id in request.token_ids[begin:]:
            if reason is not None:
                break
            text, reason = self.streams[request].send(token_id)
            pieces.append(text)
        self.told[request] = told + len(pieces)
        request.drop_last(request.num_output_tokens - self.told[request])
        new = request.token_ids[begin:]
        if reason is not None:
            self._end(request, reason)
        return RequestOutput.of(request, "".join(pieces), new, reason)

    def _broken(self, request: Request) -> RequestOutput:
        self._end(request, FinishReason.ERROR)
        return RequestOutput.of(request, "", [], FinishReason.ERROR)

    def _end(self, request: Request, reason: FinishReason) -> None:
        self.streams.pop(request).close()
        del self.told[request]
        self.scheduler.finish(request, reason)

    def _find(self, request_id: str) -> Request | None:
        return next((r for r in self.streams if r.request_id == request_id), None)
