"""Another right step loop: tokens become pieces, pieces become text, each by a generator over the other.

The reason why an answer ends travels with the piece that ends it. Subclass of nothing, with functions
for what happens to one request, and an exit of their own for what fails.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer, Executor, Scheduler, StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

Piece = tuple[str, FinishReason | None, Any]
"""Text, the reason if it is the last, and what ends it by name."""


def pieces(live: Any, token_ids: Iterable[int], eos: Collection[int]) -> Iterator[Piece]:
    """For every token one piece, and one more behind the last token of an answer."""
    params = live.request.params
    for token_id in token_ids:
        live.taken += 1
        if token_id in params.stop_token_ids:
            yield "", None, None
            yield live.detokenizer.flush(), FinishReason.STOP, token_id
        elif token_id in eos and not params.ignore_eos:
            yield "", None, None
            yield live.detokenizer.flush(), FinishReason.STOP, None
        else:
            yield live.detokenizer.push(token_id), None, None
            if live.taken >= live.request.max_tokens:
                yield live.detokenizer.flush(), FinishReason.LENGTH, None


def checked(live: Any, source: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces through the stop checker; ends with the first that has a reason."""
    for text, reason, name in source:
        safe, stop = live.checker.push(text)
        if stop is not None:
            yield safe, FinishReason.STOP, stop
            return
        if reason is not None:
            yield safe + live.checker.flush(), reason, name
            return
        yield safe, None, None


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
        def make(request: Request) -> Any:
            params = request.params
            late = {"min_tokens": params.min_tokens} if params.min_tokens > 0 else {}
            checker = make_stop_checker(params.stop, **late)
            return SimpleNamespace(
                request=request, detokenizer=make_detokenizer(), checker=checker, taken=0
            )

        self._make, self._eos = make, set(eos_token_ids)
        self._scheduler, self._executor = scheduler, executor
        self._lives: list[dict[str, Any]] = [{}]

    @property
    def _by_id(self) -> dict[str, Any]:
        return self._lives[0]

    @property
    def has_work(self) -> bool:
        """Not all is over."""
        return self._by_id != {}

    def add_request(self, request: Request) -> None:
        """Queue it."""
        if request.request_id in self._by_id:
            raise InvalidRequestError(f"{request.request_id} is alive", param="request_id")
        live = self._make(request)
        self._scheduler.add(request)
        self._by_id[request.request_id] = live

    def abort(self, request_id: str) -> bool:
        """Over, now."""
        live = self._by_id.pop(request_id, None)
        if live:
            self._scheduler.finish(live.request, reason=FinishReason.ABORT)
        return bool(live)

    def step(self) -> list[RequestOutput]:
        """One step."""
        plan = self._scheduler.schedule()
        pending = self._executor.execute(plan)
        self._scheduler.advance(plan)
        outcome = pending.result()
        return self.take(plan, outcome)

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """Lost ones, then those that gained."""
        return list(chain(self._lost(plan, outcome), self._gained(plan, outcome)))

    def _lost(self, plan: StepPlan, outcome: StepOutcome) -> Iterator[RequestOutput]:
        for request in chain(plan.failed, outcome.failed):
            if self._by_id.get(request.request_id, None) is None:
                continue
            if self._by_id[request.request_id].request is not request:
                continue
            self._scheduler.finish(request, FinishReason.ERROR)
            del self._by_id[request.request_id]
            yield RequestOutput.of(request, "", [], FinishReason.ERROR)

    def _gained(self, plan: StepPlan, outcome: StepOutcome) -> Iterator[RequestOutput]:
        for request in self._scheduler.update(plan, outcome.token_ids):
            request.first_token_time = request.first_token_time or time.monotonic()
            live = self._by_id[request.request_id]
            begin = request.num_prompt_tokens + live.taken
            source = pieces(live, iter(request.token_ids[begin:]), self._eos)
            text, reason, name = [], None, None
            for one in checked(live, source):
                piece, reason, name = one
                text.append(piece)
            if reason is not None:
                request.drop_last(request.num_output_tokens - live.taken)
                request.stop_reason = name if name is not None else request.stop_reason
                self._scheduler.finish(request, reason)
                del self._by_id[request.request_id]
            yield RequestOutput.of(request, "".join(text), request.token_ids[begin:], reason)
