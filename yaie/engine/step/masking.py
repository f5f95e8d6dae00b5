"""The masks of a step: which tokens its constrained requests may draw. Only sampling waits for them."""

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import StepHandle
from yaie.core.request import FailureKind
from yaie.core.step import StepInput, StepMasks
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.isolation import Isolation


class PendingMasks:
    """Of a step that was sent, until all tokens of its constrained requests are known."""

    def __init__(
        self,
        step: StepInput,
        plan: StepPlan,
        encoder: StepEncoder,
        vocab_size: int,
        isolation: Isolation,
    ) -> None:
        """encoder: of the step. vocab_size: of the logits."""
        constrained = (item for item in plan.scheduled if item.request.matcher is not None)
        self._waiting = [item for item in constrained if item.samples]  # in the order of the masks
        counts = [1 + len(item.drafts) for item in self._waiting]
        seats = np.repeat(encoder.seats_of([one.request for one in self._waiting]), counts)
        bits = np.zeros((len(seats), -(-vocab_size // 8)), dtype=np.uint8)
        self._masks = StepMasks(step.step, seats, bits)
        self._isolation = isolation

    def send(self, handle: StepHandle) -> None:
        """Fill them in, and let the step sample."""
        row = 0
        for item in self._waiting:
            request, rows = item.request, self._masks.bits[row : row + 1 + len(item.drafts)]
            row += len(rows)
            if request.is_finished:
                rows[:] = 0xFF  # its draw goes nowhere
            elif not self._isolation.call(
                request, False, _fill, item, rows, kind=FailureKind.CONSTRAINT
            ):
                rows[:] = 0  # nothing is drawn for it
        handle.mask(self._masks)


def _fill(item: ScheduledRequest, rows: NDArray[np.uint8]) -> bool:
    """Set what may be drawn, and behind each draft."""
    item.request.matcher.fill_ahead(rows, item.drafts)
    return True
