"""`RankedWorker`: control's own worker and the ranks in other processes, as one."""

from yaie.core.contracts import StepHandle, Worker
from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.worker.ranks.crew import Crew
from yaie.worker.ranks.messages import Collect


class RankedStep:
    """See `yaie.core.contracts.StepHandle`. Raises EngineDeadError if a rank is lost."""

    def __init__(self, handle: StepHandle, crew: Crew, step: int) -> None:
        self._handle = handle
        self._crew = crew
        self._step = step

    def mask(self, masks: StepMasks) -> None:
        self._crew.send(masks)
        self._handle.mask(masks)

    def result(self) -> StepResult:
        self._crew.send(Collect(self._step))
        result = self._handle.result()
        if result.fault is not None:
            raise self._crew.failure(result.fault)
        return self._crew.settled(self._step, result)


class RankedWorker:
    """See `yaie.core.contracts.Worker`. Every rank gets the calls that rank 0's worker gets, in the same
    order."""

    def __init__(self, worker: Worker, crew: Crew) -> None:
        """worker: of rank 0."""
        self._worker = worker
        self._crew = crew

    def execute(self, step: StepInput) -> RankedStep:
        """See the contract. Raises EngineDeadError if a rank is lost."""
        self._crew.send(step)
        return RankedStep(self._worker.execute(step), self._crew, step.step)

    def close(self) -> None:
        """Rank 0 may wait for the others: they end first, and it fails."""
        self._crew.close()
        self._worker.close()
        self._crew.leave()
