"""`Readout`: what a step is asked for besides tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from yaie.core.contracts.graphs import MakeToHost
from yaie.core.step import Arrays, Ints, StepInput, StepResult
from yaie.worker.input_batch import InputBatch
from yaie.worker.rows import Rows


@dataclass(frozen=True, slots=True)
class Computed:
    """A step whose forward pass is queued.

    hidden: the model's states [T, hidden]. ends: [n] int32, where the tokens of each row end among them.
    head: makes logits of states. to_host: begins to copy a tensor.
    """

    step: StepInput
    ends: Ints
    hidden: Tensor
    batch: InputBatch
    head: Callable[[Tensor], Tensor]
    to_host: MakeToHost

    def asked(self, name: str) -> Arrays:
        """What the step says to a readout."""
        return self.step.extras[name]


class Readout:
    """Of one step. Making it reads the states; it holds as little of them as it can."""

    def see(self, logits: Tensor, rows: Rows) -> None:
        """The model's own logits [n, vocab] float32 of the rows that draw, before any rule."""

    def drew(self, token_ids: Tensor) -> None:
        """What those rows have drawn, [n] int64."""

    def collect(self, result: StepResult) -> None:
        """Add to a result whose tokens are known."""


MakeReadout = Callable[[Computed], Readout]
