"""Sends plans to a worker as data, and takes over for their requests what comes back."""

import time
from collections.abc import Sequence

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import StepHandle, Worker
from yaie.core.step import Extras
from yaie.engine.asks import READ
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.explaining import StepFaultError
from yaie.engine.step.failures import failed_requests
from yaie.engine.step.hooks import Hooks, StepObserver
from yaie.engine.step.isolation import Isolation
from yaie.engine.step.masking import PendingMasks


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
        self._vocab_size = vocab_size
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
            sent.masks = PendingMasks(step, plan, self._encoder, self._vocab_size, self._isolation)
        return sent


class SentStep:
    """See `yaie.core.contracts.PendingStep`.

    handle: None for a plan of nothing. asked: what it is asked for. masks: that its sampling waits for.
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
        self.masks: PendingMasks | None = None
        self._plan = plan
        self._isolation = isolation
        self._observers = observers
        self._begin = begin

    def send_masks(self) -> None:
        """Let the step sample. All tokens of its constrained requests are known by now. Twice, or where
        there are none, is harmless."""
        if self.masks is not None and self.handle is not None:
            masks, self.masks = self.masks, None
            masks.send(self.handle)

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
            outcome.failed = failed_requests(self._plan, result, self._isolation)
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
