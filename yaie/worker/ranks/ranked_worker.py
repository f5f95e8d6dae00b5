"""`RankedWorker`: control's own worker and the ranks in other processes, as one."""

from yaie.core.contracts import Worker
from yaie.core.step import StepInput
from yaie.worker.ranks.crew import Crew
from yaie.worker.ranks.messages import Collect
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture


class RankedWorker:
    """See `yaie.core.contracts.Worker`. Every rank gets the calls that rank 0's worker gets, in the same
    order."""

    def __init__(self, worker: Worker, crew: Crew) -> None:
        """worker: of rank 0."""
        self._worker = worker
        self._crew = crew

    def execute(self, step: StepInput) -> StepFuture:
        """See the contract. It and its result raise EngineDeadError if a rank is lost."""
        return StepFuture(step, self._stages(step))

    def _stages(self, step: StepInput) -> Stages:
        self._crew.send(step)
        own = self._worker.execute(step)
        if step.masked:
            masks = yield FOR_MASKS
            if masks is not None:
                self._crew.send(masks)
                own.mask(masks)
        yield FOR_THE_END
        self._crew.send(Collect(step.step))
        result = own.result()
        if result.fault is not None:
            raise self._crew.failure(result.fault)
        return self._crew.settled(step.step, result)

    def close(self) -> None:
        """Rank 0 may wait for the others: they end first, and it fails."""
        self._crew.close()
        self._worker.close()
        self._crew.leave()
