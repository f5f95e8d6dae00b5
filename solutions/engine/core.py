"""The step loop: schedule, run, sample, update, and tell each request what it gained.

`LLMEngine` calls it; below it stand the scheduler, the model runner and the sampler.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from yaie.core.contracts import Detokenizer, ModelRunner, Sampler, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.request import FinishReason, Request, RequestOutput


# ANCHOR: given
@dataclass(slots=True)
class Output:
    """A live request with the makers of its text."""

    request: Request
    detokenizer: Detokenizer
    stop_checker: StopChecker


class EngineCore:
    """See `yaie.core.contracts.EngineCore`.

    make_detokenizer, make_stop_checker: called once for each request.
    eos_token_ids: tokens that end a request, unless it ignores them.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        sampler: Sampler,
        make_detokenizer: Callable[[], Detokenizer],
        make_stop_checker: Callable[[Sequence[str]], StopChecker],
        eos_token_ids: Collection[int],
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._make_detokenizer = make_detokenizer
        self._make_stop_checker = make_stop_checker
        self._eos_token_ids = eos_token_ids
        self._live: dict[str, Output] = {}

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return bool(self._live)

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequestError if one with its id is alive."""
        if request.request_id in self._live:
            raise InvalidRequestError(
                f"request_id {request.request_id!r} is in use by a request that is not finished",
                param="request_id",
            )
        self._live[request.request_id] = Output(
            request, self._make_detokenizer(), self._make_stop_checker(request.params.stop)
        )
        self._scheduler.add(request)

    # ANCHOR_END: given

    # ANCHOR: abort
    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        # BEGIN SOLUTION 7.5
        output = self._live.pop(request_id, None)
        if output is None:
            return False
        self._scheduler.finish(output.request, FinishReason.ABORT)
        return True
        # END SOLUTION

    # ANCHOR_END: abort

    # ANCHOR: step
    def step(self) -> list[RequestOutput]:
        """One step for every request that the scheduler picks; returns what each one gained.

        Sets a request's `first_token_time` (time.monotonic) with its first token. A request that the
        sampler gives -1 gets a message in `error` and ends with an output of no token. A request may be
        finished by others between plan and update: it is passed over.
        """
        # BEGIN SOLUTION 7.4
        plan = self._scheduler.schedule()
        outputs = [self._failed(request) for request in plan.failed]
        if not plan.scheduled:
            return outputs
        logits = self._runner.run(plan)
        requests = [item.request for item in plan.scheduled if item.samples]
        token_ids: list[int] = []
        if requests:
            sampling_batch = self._runner.sampling_batch(requests)
            token_ids = self._sampler.sample(logits, sampling_batch).tolist()
        for request, token_id in zip(requests, token_ids, strict=True):
            if token_id < 0 and not request.is_finished:
                request.error = "the model produced logits that are not finite (NaN or infinity)"
                self._scheduler.finish(request, FinishReason.ERROR)
                outputs.append(self._failed(request))
        now = time.monotonic()
        for request in self._scheduler.update(plan, token_ids):
            request.first_token_time = request.first_token_time or now
            outputs.append(self._advance(self._live[request.request_id]))
        return outputs
        # END SOLUTION

    def _failed(self, request: Request) -> RequestOutput:
        """The last output of a request that the scheduler has ended with an error."""
        del self._live[request.request_id]
        return RequestOutput(request, "", [], FinishReason.ERROR)

    # ANCHOR_END: step

    # ANCHOR: advance
    def _advance(self, output: Output) -> RequestOutput:
        """Turn a request's newest token into text, and end the request if it is time.

        A token that ends it is not shown; it stays in `token_ids`. At the end what detokenizer and stop
        checker held back is shown, and `stop_reason` names the stop string or stop token, if one it was.
        """
        # BEGIN SOLUTION 7.3
        request = output.request
        token_id = request.token_ids[-1]
        reason = self._finish_reason(request, token_id)
        new = "" if reason is FinishReason.STOP else output.detokenizer.push(token_id)
        text, stop = output.stop_checker.push(new)
        if reason is not None and stop is None:
            tail, stop = output.stop_checker.push(output.detokenizer.flush())
            text += tail
        if stop is not None:
            reason, request.stop_reason = FinishReason.STOP, stop
        elif reason is not None:
            text += output.stop_checker.flush()
        if reason is not None:
            self._scheduler.finish(request, reason)
            del self._live[request.request_id]
        return RequestOutput(request, text, [token_id], reason)
        # END SOLUTION

    def _finish_reason(self, request: Request, token_id: int) -> FinishReason | None:
        """Whether this token ends the request: an end-of-sequence token, a stop token, or enough."""
        # BEGIN SOLUTION 7.3
        if token_id in request.params.stop_token_ids:
            request.stop_reason = token_id
            return FinishReason.STOP
        if token_id in self._eos_token_ids and not request.params.ignore_eos:
            return FinishReason.STOP
        if request.num_output_tokens >= request.max_tokens:
            return FinishReason.LENGTH
        return None
        # END SOLUTION

    # ANCHOR_END: advance
