# Lab 7, your part: tasks 7.5, 7.4, 7.3. The rest is given.
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
        # TODO 7.5: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "engine task 7.5: not implemented yet; see chapter The step loop"
        )

    # ANCHOR_END: abort

    # ANCHOR: step
    def step(self) -> list[RequestOutput]:
        """One step for every request that the scheduler picks; returns what each one gained.

        Sets a request's `first_token_time` (time.monotonic) with its first token. A request that the
        sampler gives -1 gets a message in `error` and ends with an output of no token. A request may be
        finished by others between plan and update: it is passed over.
        """
        # TODO 7.4: your code here (the reference: 20 lines).
        raise NotImplementedError(
            "engine task 7.4: not implemented yet; see chapter The step loop"
        )

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
        # TODO 7.3: your code here (the reference: 16 lines).
        raise NotImplementedError(
            "engine task 7.3: not implemented yet; see chapter The step loop"
        )

    def _finish_reason(self, request: Request, token_id: int) -> FinishReason | None:
        """Whether this token ends the request: an end-of-sequence token, a stop token, or enough."""
        # TODO 7.3: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "engine task 7.3: not implemented yet; see chapter The step loop"
        )

    # ANCHOR_END: advance
