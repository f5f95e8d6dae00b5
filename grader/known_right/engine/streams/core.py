"""The step loop with a coroutine for each request: it takes tokens and gives outputs, and its end is the
request's.

The reference has one object for a live request and decides about its end in methods of the core. Here
all that a request remembers is local to its coroutine.
"""

import time
from collections.abc import Callable, Collection, Generator, Sequence

from yaie.core.contracts import Detokenizer, ModelRunner, Sampler, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.request import FinishReason, Request, RequestOutput

Stream = Generator[RequestOutput | None, int, None]


def stream(
    request: Request, detokenizer: Detokenizer, checker: StopChecker, eos: Collection[int]
) -> Stream:
    """Send it a token, get an output. The output with a finish_reason is the last."""
    output: RequestOutput | None = None
    while output is None or output.finish_reason is None:
        token_id = yield output
        stopped = token_id in request.params.stop_token_ids
        mute = stopped or (token_id in eos and not request.params.ignore_eos)
        enough = request.num_output_tokens == request.max_tokens
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
        output = RequestOutput(request, text, [token_id], reason)
    yield output


class EngineCore:
    """See `yaie.core.contracts.EngineCore`."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        sampler: Sampler,
        make_detokenizer: Callable[[], Detokenizer],
        make_stop_checker: Callable[[Sequence[str]], StopChecker],
        eos_token_ids: Collection[int],
    ) -> None:
        self.scheduler, self.runner, self.sampler = scheduler, runner, sampler
        self.make_detokenizer, self.make_stop_checker = make_detokenizer, make_stop_checker
        self.eos = frozenset(eos_token_ids)
        self.streams: dict[Request, Stream] = {}

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return len(self.streams) > 0

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequestError if one with its id is alive."""
        if self._find(request.request_id) is not None:
            raise InvalidRequestError(f"{request.request_id} is in use", param="request_id")
        checker = self.make_stop_checker(request.params.stop)
        started = stream(request, self.make_detokenizer(), checker, self.eos)
        next(started)
        self.streams[request] = started
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
        outputs = [self._broken(request) for request in plan.failed]
        if plan.scheduled:
            logits = self.runner.run(plan)
            rows = [item.request for item in plan.scheduled if item.samples]
            drawn = self.sampler.sample(logits, self.runner.sampling_batch(rows)).tolist()
            for request in [r for r, token in zip(rows, drawn, strict=True) if token < 0]:
                if request in self.streams:
                    request.error = "its logits are not finite"
                    outputs.append(self._broken(request))
            gained = self.scheduler.update(plan, drawn)
            outputs += [self._gain(request) for request in gained]
        return outputs

    def _gain(self, request: Request) -> RequestOutput:
        if request.first_token_time is None:
            request.first_token_time = time.monotonic()
        output = self.streams[request].send(request.token_ids[-1])
        assert output is not None
        if output.finish_reason is not None:
            self._end(request, output.finish_reason)
        return output

    def _broken(self, request: Request) -> RequestOutput:
        self._end(request, FinishReason.ERROR)
        return RequestOutput(request, "", [], FinishReason.ERROR)

    def _end(self, request: Request, reason: FinishReason) -> None:
        self.streams.pop(request).close()
        self.scheduler.finish(request, reason)

    def _find(self, request_id: str) -> Request | None:
        return next((r for r in self.streams if r.request_id == request_id), None)
