"""What is in flight is one step or none: two variables instead of a queue."""

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import EngineCore, Scheduler
from yaie.core.contracts.graphs import SentStep, StepSender
from yaie.core.output import RequestOutput
from yaie.core.request import Request


class OverlappedLoop:
    def __init__(self, core: EngineCore, scheduler: Scheduler, executor: StepSender) -> None:
        self._core = core
        self._scheduler = scheduler
        self._executor = executor
        self._before: tuple[StepPlan, SentStep] | None = None

    def add_request(self, request: Request) -> None:
        self._core.add_request(request)

    def abort(self, request_id: str) -> bool:
        return self._core.abort(request_id)

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[RequestOutput]:
        return self._core.take(plan, outcome)

    def _ended(self, failed: list[Request]) -> list[RequestOutput]:
        if not failed:
            return []
        alone = StepPlan(failed=list(failed))
        failed.clear()
        return self._core.take(alone, StepOutcome())

    @property
    def has_work(self) -> bool:
        return self._before is not None or self._core.has_work

    def step(self) -> list[RequestOutput]:
        plan = self._scheduler.schedule()
        told = self._ended(plan.failed)
        sent = self._executor.execute(plan)
        self._scheduler.advance(plan)
        before, self._before = self._before, None if plan.is_empty else (plan, sent)
        if before is not None:
            told = [*told, *self._core.take(before[0], before[1].result())]
        if not plan.is_empty:
            sent.send_masks()
        return told
