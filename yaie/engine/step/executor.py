"""Sends plans to a worker as data, and takes over for their requests what comes back."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.contracts import StepHandle, Worker
from yaie.core.request import FailureKind, Request
from yaie.core.step import Extras, StepMasks, StepResult
from yaie.engine.asks import READ
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.explaining import StepFaultError
from yaie.engine.step.hooks import Hooks, StepObserver
from yaie.engine.step.isolation import Isolation

CORRUPTED = "the model produced logits that are not finite (NaN or infinity)"

NO_MEMORY = (
    "the device had no memory left for this prompt: send it again. If it happens often, start the "
    "engine with a smaller token_budget or kv_memory_share"
)


class StepExecutor:
    """See `yaie.core.contracts.Executor`."""

    def __init__(
        self,
        worker: Worker,
        encoder: StepEncoder,
        vocab_size: int,
        hooks: Hooks | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        """vocab_size: of the logits. hooks: of the machine. isolation: the encoder's."""
        self._worker = worker
        self._encoder = encoder
        self._mask_bytes = -(-vocab_size // 8)
        self._hooks = hooks or Hooks()
        self._isolation = isolation or Isolation()

    def execute(self, plan: StepPlan) -> "SentStep":
        """Begin to carry out a plan, without requests that cannot be encoded: they are taken off it."""
        for stage in self._hooks.stages:
            stage.extend(plan)
        begin = time.perf_counter()  # on a CPU a step is computed when `execute` returns
        step = self._encoder.encode(plan)
        sent = SentStep(plan, self._isolation, self._hooks.observers, begin)
        if step is None:
            return sent
        sent.asked = step.extras
        sent.handle = self._worker.execute(step)
        if step.masked:
            constrained = (item for item in plan.scheduled if item.request.matcher is not None)
            sent.waiting = [item for item in constrained if item.samples]
            counts = [1 + len(item.drafts) for item in sent.waiting]
            seats = np.repeat(self._encoder.seats_of([one.request for one in sent.waiting]), counts)
            bits = np.zeros((len(seats), self._mask_bytes), dtype=np.uint8)
            sent.masks = StepMasks(step.step, seats, bits)
        return sent


class SentStep:
    """See `yaie.core.contracts.PendingStep`.

    handle: None for a plan of nothing. asked: what it is asked for. waiting: those that sample under a
    grammar, in the order of `masks`, whose rows are still to be filled in.
    """

    def __init__(
        self,
        plan: StepPlan,
        isolation: Isolation,
        observers: Sequence[StepObserver],
        begin: float,
    ) -> None:
        """observers: are told what came of the plan, and how long it took since `begin`, of
        `time.perf_counter`."""
        self.handle: StepHandle | None = None
        self.asked: Extras = {}
        self.waiting: list[ScheduledRequest] = []
        self.masks: StepMasks | None = None
        self._plan = plan
        self._isolation = isolation
        self._observers = observers
        self._begin = begin

    def send_masks(self) -> None:
        """Let the step sample. All tokens of its constrained requests are known by now. Twice, or where
        there are none, is harmless."""
        if self.masks is None or self.handle is None:
            return
        masks, self.masks = self.masks, None
        row = 0
        for item in self.waiting:
            request, rows = item.request, masks.bits[row : row + 1 + len(item.drafts)]
            row += len(rows)
            if request.is_finished:
                rows[:] = 0xFF  # its draw goes nowhere
            elif not self._isolation.call(
                request, False, _fill, item, rows, kind=FailureKind.CONSTRAINT
            ):
                rows[:] = 0  # nothing is drawn for it
        self.handle.mask(masks)

    def result(self) -> StepOutcome:
        """See the contract. Raises StepFaultError."""
        if self.handle is None:
            return StepOutcome()
        if self.masks is not None:
            self.send_masks()
        result = self.handle.result()
        if result.fault is not None:
            raise StepFaultError(result.fault)
        if self.asked:
            self._note(result.extras)
        outcome = StepOutcome(result.token_ids)
        if self._isolation.failed or result.corrupted or result.out_of_memory:
            outcome.failed = self._failed(result)
        seconds = time.perf_counter() - self._begin
        for observer in self._observers:
            observer.stepped(self._plan, result, seconds)
        return outcome

    def _note(self, told: Extras) -> None:
        """Have what the worker was asked for noted on the requests."""
        for _, ask in READ:
            if ask.name in self.asked:
                for row, own in ask.told(self.asked[ask.name], told.get(ask.name)):
                    item = self._plan.scheduled[row]
                    self._isolation.call(item.request, None, ask.note, item, own)

    def _failed(self, result: StepResult) -> list[Request]:
        """The live requests that this step went wrong for, told why."""
        failed = []
        alone = self._isolation.rows(self._plan.scheduled)
        for row in sorted({*alone, *result.corrupted, *result.out_of_memory}):
            request = self._plan.scheduled[row].request
            if request.is_finished:
                continue
            if row in alone:
                self._isolation.note(request)
            elif row in result.out_of_memory:
                request.error, request.failure = NO_MEMORY, FailureKind.MEMORY
            else:
                reason = request.matcher.error if request.matcher is not None else None
                kind = FailureKind.CORRUPTED if reason is None else FailureKind.CONSTRAINT
                request.error, request.failure = reason or CORRUPTED, kind
            failed.append(request)
        return failed


def _fill(item: ScheduledRequest, rows: NDArray[np.uint8]) -> bool:
    """Set what may be drawn, and behind each draft."""
    item.request.matcher.fill_ahead(rows, item.drafts)
    return True
