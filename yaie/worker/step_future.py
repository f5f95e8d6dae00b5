"""`StepFuture`: a step that a worker has begun, whichever worker it is."""

import logging
from collections.abc import Callable, Generator

import numpy as np
import torch

from yaie.core.step import Fault, StepInput, StepMasks, StepResult

logger = logging.getLogger(__name__)

FOR_MASKS, FOR_THE_END = True, False
Stages = Generator[bool, StepMasks | None, StepResult]
"""A step from its beginning to its result, as a generator. It stops where it waits: FOR_MASKS, which it
is sent, and FOR_THE_END, when all is begun and somebody must ask for the result."""


class StepFuture:
    """See `yaie.core.contracts.StepHandle`.

    fault: what has broken the step so far.
    """

    def __init__(
        self,
        step: StepInput,
        stages: Stages,
        explain: Callable[[BaseException], Fault] | None = None,
    ) -> None:
        """Run `stages` to their first stop. On a CPU tokens are sampled by then, unless masks must come.
        explain: an exception as data, the result's fault; without it what the stages raise is raised."""
        self.fault: Fault | None = None
        self._step = step
        self._stages = stages
        self._explain = explain
        self._result: StepResult | None = None
        self._waits = FOR_THE_END
        self._go_on(None)

    def mask(self, masks: StepMasks) -> None:
        """See the contract."""
        if self._waits is FOR_MASKS:
            self._go_on(masks)

    def result(self) -> StepResult:
        """See the contract."""
        while self._result is None:
            self._go_on(None)
        return self._result

    @torch.inference_mode()
    def _go_on(self, masks: StepMasks | None) -> None:
        """To the next stop."""
        try:
            if masks is not None and not np.isin(masks.seats, self._step.seats).all():
                raise ValueError(
                    f"masks for seats {masks.seats.tolist()}, not {self._step.seats.tolist()}"
                )
            self._waits = self._stages.send(masks)
        except StopIteration as end:
            self._result, self._waits = end.value, FOR_THE_END
        except (Exception, SystemExit) as error:  # a learner's part may even raise SystemExit
            if self._explain is None:
                raise
            logger.error("a step failed", exc_info=True)
            self.fault = self._explain(error)
            self._result, self._waits = StepResult(self._step.step, fault=self.fault), FOR_THE_END
