# Lab 7, your part: tasks 7.3, 7.4, 7.5. The rest is given.
"""The step loop: schedule, execute, advance, and take over what came out.

`LLMEngine` calls it, through what `yaie/engine/build.py` puts around it; below it are the scheduler
and the executor, which sends plans to the worker.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request


# ANCHOR: given
@dataclass(slots=True)
class Output:
    """A live request with the makers of its text. num_shown: output tokens that became text."""

    request: Request
    detokenizer: Detokenizer
    stop_checker: StopChecker
    num_shown: int = 0


class EngineCore:
    """See `yaie.core.contracts.EngineCore`.

    make_detokenizer, make_stop_checker: called once for each request, by `add_request`; the second with
        its stop strings and, where it has one, `min_tokens`: then it makes a checker that counts pushes,
        one a token.
    eos_token_ids: tokens that end a request, unless it ignores them.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        make_detokenizer: Callable[[], Detokenizer],
        make_stop_checker: Callable[..., StopChecker],
        eos_token_ids: Collection[int],
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
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
        stop, least = request.params.stop, request.params.min_tokens
        late = {"min_tokens": least} if least else {}
        output = Output(request, self._make_detokenizer(), self._make_stop_checker(stop, **late))
        self._scheduler.add(request)
        self._live[request.request_id] = (
            output  # only now: nothing may wait for what was not queued
        )

    # ANCHOR_END: given

    # ANCHOR: abort
    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        # TODO 7.5: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "engine task 7.5: not implemented yet; see chapter The engine"
        )

    # ANCHOR_END: abort

    # ANCHOR: step
    def step(self) -> list[RequestOutput]:
        """One step for every request that the scheduler picks; returns what each one gained.

        In this order: schedule, execute (also a plan without requests, which may move blocks), advance,
        and only then wait for the outcome. What one of them raises goes through.
        """
        # TODO 7.4: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "engine task 7.4: not implemented yet; see chapter The engine"
        )

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """Take over what came of a plan, perhaps a step late; returns what each of its requests gained.

        Requests of `plan.failed` are finished already, those of `outcome.failed` are to be finished
        here, unless they have ended meanwhile: each ends with an output of no token. Then the scheduler
        is told the tokens, and `_show` turns them into text. Sets `first_token_time` (time.monotonic)
        when a request gains its first token, even if the step brings several. Plan and outcome stay as
        they are.
        """
        # TODO 7.4: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "engine task 7.4: not implemented yet; see chapter The engine"
        )

    def _failed(self, request: Request) -> RequestOutput:
        """The last output of a request that has ended with an error."""
        del self._live[request.request_id]
        return RequestOutput.of(request, "", [], FinishReason.ERROR)

    # ANCHOR_END: step

    # ANCHOR: show
    def _show(self, output: Output) -> RequestOutput:
        """Turn a request's new tokens into text, and end the request if it is time.

        A stop token or end-of-sequence token is not shown, but stays in `token_ids`. What came after the
        end is dropped (`Request.drop_last`), and only then is it ended at the scheduler,
        which files what is left. At the end, what detokenizer and stop checker held back is shown.

        `stop_reason` names the stop string that ended the text, even if only the text flushed after a
        stop token completes it. Without one it is the stop token, even if that is an end-of-sequence
        token as well.
        """
        # TODO 7.3: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "engine task 7.3: not implemented yet; see chapter The engine"
        )

    def _show_one(self, output: Output, token_id: int) -> tuple[str, FinishReason | None]:
        """The text that one more token makes safe to show, and why the request ends with it, if so.

        The stop checker hears of every token that goes on: of one that gives no text yet it gets "".
        """
        # TODO 7.3: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "engine task 7.3: not implemented yet; see chapter The engine"
        )

    def _finish_reason(self, output: Output, token_id: int) -> FinishReason | None:
        """Whether this token ends the request: an end-of-sequence token, a stop token, or enough.

        Enough is `request.max_tokens`: what the client asks for, or less where the context is full.
        """
        # TODO 7.3: your code here (the reference: 9 lines).
        raise NotImplementedError(
            "engine task 7.3: not implemented yet; see chapter The engine"
        )

    # ANCHOR_END: show
