"""Steps that lab 17 carries out on fixed memory, as a CUDA graph replays them: `Replaying`, the part of
a worker that has them, and `Begun`, what becomes of a step either way.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.contracts.graphs import GraphRunner, MakeToHost, ToHost
from yaie.core.step import StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.input_batch import InputBatch
from yaie.worker.padded import PaddedMachine
from yaie.worker.readouts.base import Readout
from yaie.worker.row_order import RowOrder, longest_first, pick
from yaie.worker.rows import Rows


@dataclass(slots=True)
class Begun:
    """A step whose forward pass is queued.

    rows: those that draw. logits: [n, vocab] float32, what they are to be drawn from; None if that is
    done, or nothing is drawn. readouts: what is asked for. all_finite: of each chunk. drawn: [n] int64.
    """

    step: StepInput
    rows: Rows | None = None
    logits: Tensor | None = None
    readouts: list[Readout] = field(default_factory=list)
    all_finite: ToHost | None = None
    drawn: ToHost | None = None


class Replaying(ABC):
    """What `Worker` has for them, beside what it is made of.

    `runner` may be set: it then carries out the steps that it takes. note: what to know of that.
    first_columns: where each block table of a seat begins, in the columns of a step's new entries.
    """

    runner: GraphRunner | None = None
    note: str = ""
    first_columns: tuple[int, ...] = (0,)

    adapter: ModelAdapter
    attention: BatchAttention
    pool: KVPool
    sampler: Sampler
    split_sampler: Sampler | None
    batch: InputBatch
    max_model_len: int
    device: torch.device
    to_host: MakeToHost
    before_forward: Callable[[], None]

    @abstractmethod
    def begin(self, step: StepInput, hidden: Tensor) -> Begun:
        """Go on from the states [T, hidden] of a step's tokens."""

    def padded_machine(self) -> PaddedMachine:
        """What padded steps of this worker run on."""
        return PaddedMachine(
            self.adapter,
            self.attention,
            self.pool,
            self.sampler,
            self.split_sampler,
            self.batch,
            self.max_model_len,
            self.device,
        )

    def close(self) -> None:
        """Drop recorded steps: what they hold of other ranks can then be given back."""
        self.runner = None

    def _replay(self, step: StepInput, runner: GraphRunner) -> tuple[Begun, RowOrder | None]:
        """A step as lab 17 carries it out, and the order of its rows."""
        self.before_forward()
        order = longest_first(step) if runner.draws(step) else None
        if order is not None:
            step = pick(step, order)
        hidden = runner.forward(step)
        is_plain = self.batch.is_plain(step.seats) and not step.masked and not step.extras
        if order is not None and is_plain:
            return Begun(step, drawn=self.to_host(runner.draw(len(step.seats)))), order
        # The states hold until the next step, and what is asked for may look at them later.
        return self.begin(step, hidden.clone() if step.extras else hidden), order
