"""`RankedWorker`: control's own worker and the ranks in other processes, as one."""

from yaie.core.contracts import Worker
from yaie.core.step import StepInput
from yaie.worker.parallel.executor import RankExecutor
from yaie.worker.parallel.messages import Collect
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture


class RankedWorker:
    """See `yaie.core.contracts.Worker`. Every rank gets the calls that rank 0's worker gets, in the same
    order."""

    def __init__(self, worker: Worker, executor: RankExecutor) -> None:
        """worker: of rank 0."""
        self._worker = worker
        self._executor = executor

    def execute(self, step: StepInput) -> StepFuture:
        """See the contract. It and its result raise EngineDeadError if a rank is lost."""
        return StepFuture(step, self._stages(step))

    def _stages(self, step: StepInput) -> Stages:
        self._executor.send(step)
        own = self._worker.execute(step)
        if step.masked:
            masks = yield FOR_MASKS
            if masks is not None:
                self._executor.send(masks)
                own.mask(masks)
        yield FOR_THE_END
        self._executor.send(Collect(step.step))
        result = own.result()
        if result.fault is not None:
            raise self._executor.failure(result.fault)
        return self._executor.settled(step.step, result)

    def close(self) -> None:
        """Rank 0 may wait for the others: they end first, and it fails."""
        self._executor.close()
        self._worker.close()
        self._executor.leave()
