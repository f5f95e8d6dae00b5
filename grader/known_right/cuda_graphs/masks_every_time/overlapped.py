"""Masks are sent to every step in flight whenever one was read, and to the only one after each call."""

from collections import deque

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import EngineCore, Scheduler
from yaie.core.contracts.graphs import SentStep, StepSender
from yaie.core.output import RequestOutput
from yaie.core.request import Request


class OverlappedLoop:
    """See `yaie.core.contracts.EngineCore`: the core of lab 7, with another order of calls in `step`."""

    def __init__(self, core: EngineCore, scheduler: Scheduler, executor: StepSender) -> None:
        self._core = core
        self._scheduler = scheduler
        self._executor = executor
        self._in_flight: deque[tuple[StepPlan, SentStep]] = deque()

    def add_request(self, request: Request) -> None:
        """See the contract."""
        self._core.add_request(request)

    def abort(self, request_id: str) -> bool:
        """See the contract."""
        return self._core.abort(request_id)

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        """See the contract."""
        return self._core.take(plan, outcome)

    def _ended(self, failed: list[Request]) -> list[RequestOutput]:
        """The last outputs of requests that can never run; they need not wait for a step."""
        if not failed:
            return []
        alone = StepPlan(failed=list(failed))
        failed.clear()
        return self._core.take(alone, StepOutcome())

    @property
    def has_work(self) -> bool:
        """Whether a request is not finished, or a step has not been read."""
        return bool(self._in_flight) or self._core.has_work

    def step(self) -> list[RequestOutput]:
        """Send the next step, then take over the one before it. The first call only sends.

        In this order: schedule, execute, advance, and only then wait for the oldest outcome. Requests
        that can never run are reported in the same call. An empty plan is executed and advanced too, but
        is not in flight, so the call takes the oldest step over. Constrained requests of a step sample
        when `send_masks` is called: once all tokens before it are known.
        """
        plan = self._scheduler.schedule()
        told = self._ended(plan.failed)
        self._in_flight.append((plan, self._executor.execute(plan)))
        self._scheduler.advance(plan)
        if plan.is_empty:
            self._in_flight.pop()[1].send_masks()
        while len(self._in_flight) > (not plan.is_empty):
            oldest, sent = self._in_flight.popleft()
            sent.send_masks()
            told += self._core.take(oldest, sent.result())
        for _, sent in self._in_flight:
            sent.send_masks()
            sent.send_masks()
        return told
