"""The loop is a generator, which `step` moves on by one: where it stands is what it knows."""

from collections.abc import Iterator

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
        self._flying = False
        self._steps = self._run()

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
        return self._flying or self._core.has_work

    def step(self) -> list[RequestOutput]:
        return next(self._steps)

    def _run(self) -> Iterator[list[RequestOutput]]:
        before: tuple[StepPlan, SentStep] | None = None
        while True:
            plan = self._scheduler.schedule()
            outputs = self._ended(plan.failed)
            sent = self._executor.execute(plan)
            self._scheduler.advance(plan)
            self._flying = not plan.is_empty
            if before is not None:
                outputs = outputs + self._core.take(before[0], before[1].result())
                before = None
            if self._flying:
                sent.send_masks()
                before = plan, sent
            yield outputs
