"""A step on one stage of a pipeline: in microbatches, of which the next stage computes one meanwhile.

Each microbatch is a run of the step's rows, and is sampled as soon as the last stage has its logits.
What was drawn goes to the first stage, which needs it for the tokens of the next step: it waits for a
microbatch's draws when it is about to embed the next token of one of those rows, and not before. So the
first microbatch of a step may begin while the last one of the step before is under way.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from yaie.core.contracts.ranks import Transfer
from yaie.core.step import Ints, StepInput, StepResult
from yaie.models.adapter import ModelAdapter
from yaie.models.whole import Passing
from yaie.worker.drafts import DraftRows, as_tensor
from yaie.worker.layout import attend_through, lay_out
from yaie.worker.replaying import Begun
from yaie.worker.row_order import pick, put_together
from yaie.worker.rows import Rows
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages
from yaie.worker.worker import Worker


class Stage:
    """What a worker keeps from step to step as one stage of a pipeline."""

    def __init__(self, passing: Passing) -> None:
        self.passing = passing
        self._awaited: list[tuple[int, StepInput]] = []  # whose draws are to come: step and part
        self._sent: list[tuple[int, Transfer]] = []

    # --- the first stage ---

    def expect(self, part: StepInput) -> None:
        """The last stage will draw for this part of a step."""
        if self.passing.is_first and part.samples.any():
            self._awaited.append((part.step, part))

    def await_draws(self, worker: Worker, seats: Ints | None, step: int) -> None:
        """Take over what was drawn: for these seats, and all of the steps before `step`; None for all of
        that step, too."""
        count = 0
        for position, (number, part) in enumerate(self._awaited, 1):
            needed = seats is None and number <= step
            if seats is not None:
                needed = number < step - 1 or bool(np.isin(part.seats, seats).any())
            count = position if needed else count
        for _, part in self._awaited[:count]:
            _take_over(worker, part, self.passing)
        del self._awaited[:count]

    # --- the last stage ---

    def tell(self, step: int, drawn: Tensor) -> None:
        """Begin to send the first stage what was drawn, [rows] int64."""
        if not self.passing.is_first:
            self._sent.append((step, self.passing.draws.send(drawn.contiguous(), 0)))

    def told(self, step: int) -> None:
        """Wait until the first stage has all draws of this step and of those before."""
        for number, transfer in self._sent:
            if number <= step:
                transfer.wait()
        self._sent = [one for one in self._sent if one[0] > step]


def _take_over(worker: Worker, part: StepInput, passing: Passing) -> None:
    """Receive what was drawn for a part of a step, and note each seat's last token."""
    seats, rows = part.seats[part.samples], None
    if len(part.drafts):
        ends = np.cumsum(part.num_tokens, dtype=np.int32)
        rows = DraftRows(part, ends, worker.batch.lives, worker.device)
    count = len(seats) if rows is None else len(rows.seats)
    drawn = torch.empty(count, dtype=torch.int64, device=worker.device)
    passing.draws.receive(drawn, passing.draws.size - 1).wait()
    if rows is None:
        index = as_tensor(seats.tolist(), worker.device)
        worker.batch.last_tokens.index_copy_(0, index, drawn.clamp(min=0))
        return
    gained = rows.accepted(drawn.tolist(), worker.accepted)
    pairs = [(seat, own[-1]) for seat, own in zip(seats.tolist(), gained, strict=True) if own]
    index, tokens = (as_tensor(list(part), worker.device) for part in zip(*pairs, strict=True))
    worker.batch.last_tokens.index_copy_(0, index, tokens)


class StagedWorker(Worker):
    """A worker of one stage. Results are whole on the last stage alone."""

    def __init__(self, adapter: ModelAdapter, *parts: Any, **settings: Any) -> None:
        """See Worker; the adapter's shard passes states on."""
        super().__init__(adapter, *parts, **settings)
        passing = adapter.shard.passing
        assert passing is not None
        self._stage = Stage(passing)

    def stages(self, step: StepInput) -> Stages:
        """A step of this stage's layers, and on the last one its draws."""
        stage, passing = self._stage, self._stage.passing
        self.move(step)
        self.batch.extend_tables(step)
        begun = self._microbatches(step) if len(step.seats) else []
        if any(part.logits is not None for part in begun):
            masks = yield FOR_MASKS
            for part in begun:
                if part.logits is not None:
                    self.draw(part, masks)
        yield FOR_THE_END
        if passing.is_first:
            stage.await_draws(self, None, step.step)
        if not passing.is_last:
            return StepResult(step.step)
        results = [self.collect(part) for part in begun]
        stage.told(step.step)
        return put_together(results, [len(part.step.seats) for part in begun], step.step)

    def _microbatches(self, step: StepInput) -> list[Begun]:
        """Compute them; what the last stage has begun to draw."""
        passing = self._stage.passing
        runs = passing.pipeline.microbatches(step.num_tokens.tolist(), passing.stages)
        parts = [pick(step, np.arange(run.start, run.stop)) for run in runs]
        begun = []

        def compute(index: int, incoming: Tensor | None) -> Tensor:
            states = self._continued(parts[index], incoming)
            if passing.is_last:
                begun.append(self.begin(parts[index], states))
            else:
                self._stage.expect(parts[index])
            return states

        passing.pipeline.run([int(part.num_tokens.sum()) for part in parts], compute, self._empty)
        return begun

    def advance(self, step: StepInput, rows: Rows, drawn: Tensor) -> None:
        """See Worker. The first stage is told, too."""
        super().advance(step, rows, drawn)
        self._stage.tell(step.step, drawn)

    def _empty(self, num_tokens: int) -> Tensor:
        return self.adapter.empty(num_tokens, self.adapter.config.hidden_size)

    def _continued(self, part: StepInput, incoming: Tensor | None) -> Tensor:
        """The states behind this stage of a part's tokens. incoming: what came from the stage before;
        None on the first."""
        if incoming is None:
            self._stage.await_draws(self, part.seats, part.step)
        token_ids, batch = lay_out(part, self.batch, self.pool)
        attend = attend_through(self.attention, self.attention.plan(batch))
        self.before_forward()
        if incoming is None:
            incoming = self.adapter.embedded(token_ids, batch.positions)
        return self.adapter.continued(incoming, batch.positions, attend)
