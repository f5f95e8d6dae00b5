"""Another right step loop: what may end a request is a row of rules, each asked in turn.

A rule says after a token whether it ends the answer, and whether the token has text. Live requests are
objects that know how to take a token; the core only passes work on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request


class End(NamedTuple):
    """How an answer ends."""

    reason: FinishReason
    has_text: bool
    named: int | str | None = None


Rule = Callable[["Answer", int], End | None]


def by_stop_token(answer: Answer, token_id: int) -> End | None:
    """A token that the client named."""
    if token_id in answer.request.params.stop_token_ids:
        return End(FinishReason.STOP, False, token_id)
    return None


def by_end_of_sequence(answer: Answer, token_id: int) -> End | None:
    """A token that the model has for it."""
    if token_id not in answer.eos or answer.request.params.ignore_eos:
        return None
    return End(FinishReason.STOP, False)


def by_length(answer: Answer, token_id: int) -> End | None:
    """The last one that is allowed."""
    is_last = answer.count >= answer.request.max_tokens
    return End(FinishReason.LENGTH, True) if is_last else None


RULES: tuple[Rule, ...] = (by_stop_token, by_end_of_sequence, by_length)


class Answer:
    """A live request. count: tokens that were taken, this one included."""

    def __init__(
        self, request: Request, detokenizer: Detokenizer, stops: StopChecker, eos: Collection[int]
    ) -> None:
        self.request, self.detokenizer, self.stops, self.eos = request, detokenizer, stops, eos
        self.count = 0
        self.end: End | None = None
        self.text = ""

    def take(self, token_id: int) -> None:
        """Adds to `text`, and sets `end` with the last token."""
        self.count += 1
        end = next(filter(None, (rule(self, token_id) for rule in RULES)), None)
        if end is None or end.has_text:
            self._say(self.detokenizer.push(token_id))
        if end is not None and self.end is None:
            self._say(self.detokenizer.flush())
            if self.end is None:
                self.text += self.stops.flush()
                self.end = end

    def _say(self, piece: str) -> None:
        shown, stop = self.stops.push(piece)
        self.text += shown
        if stop is not None:
            self.end = End(FinishReason.STOP, True, stop)

    def take_new(self) -> RequestOutput:
        """All tokens that came, and how it goes on."""
        request, before = self.request, self.count
        new = request.token_ids[request.num_prompt_tokens + before :]
        self.text = ""
        for token_id in new:
            self.take(token_id)
            if self.end is not None:
                break
        num_taken = self.count - before
        request.drop_last(len(new) - num_taken)
        if self.end is not None and self.end.named is not None:
            request.stop_reason = self.end.named
        reason = self.end.reason if self.end else None
        return RequestOutput.of(request, self.text, new[:num_taken], reason)


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
        self._parts = scheduler, executor
        self._make = make_detokenizer, make_stop_checker
        self._eos = eos_token_ids
        self._answers: dict[str, Answer] = {}

    @property
    def has_work(self) -> bool:
        """Whether an answer is not complete."""
        return len(self._answers) > 0

    def add_request(self, request: Request) -> None:
        """Queue a request."""
        if request.request_id in self._answers:
            raise InvalidRequestError("another request has this id", param="request_id")
        make_detokenizer, make_checker = self._make
        params = request.params
        if params.min_tokens:
            checker = make_checker(params.stop, min_tokens=params.min_tokens)
        else:
            checker = make_checker(params.stop)
        answer = Answer(request, make_detokenizer(), checker, self._eos)
        self._parts[0].add(request)
        self._answers[request.request_id] = answer

    def abort(self, request_id: str) -> bool:
        """End a request now."""
        try:
            answer = self._answers.pop(request_id)
        except KeyError:
            return False
        self._parts[0].finish(answer.request, FinishReason.ABORT)
        return True

    def step(self) -> list[RequestOutput]:
        """Schedule, execute, advance, take."""
        scheduler, executor = self._parts
        plan = scheduler.schedule()
        result = executor.execute(plan)
        scheduler.advance(plan)
        return self.take(plan, result.result())

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """Outputs of a plan."""
        scheduler = self._parts[0]
        failed = list(plan.failed)
        for request in outcome.failed:
            if not request.is_finished:
                failed.append(request)
                scheduler.finish(request, FinishReason.ERROR)
        outputs = []
        for request in failed:
            self._answers.pop(request.request_id)
            outputs.append(RequestOutput.of(request, "", [], FinishReason.ERROR))
        gained = scheduler.update(plan, outcome.token_ids)
        for request in gained:
            if request.first_token_time is None:
                request.first_token_time = time.monotonic()
        for request in gained:
            output = self._answers[request.request_id].take_new()
            if output.finish_reason is not None:
                scheduler.finish(request, output.finish_reason)
                del self._answers[request.request_id]
            outputs.append(output)
        return outputs
