"""A step on one stage of a pipeline: in microbatches, of which the next stage computes one meanwhile.

Each microbatch is a run of the step's rows, and is sampled as soon as the last stage has its logits.
What was drawn goes to the first stage, which needs it for the tokens of the next step: it waits for a
microbatch's draws when it is about to embed the next token of one of those rows, and not before. So the
first microbatch of a step may begin while the last one of the step before is under way.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.contracts.ranks import Transfer
from yaie.core.step import Fault, Ints, StepInput, StepMasks, StepResult, no_ints
from yaie.models.shard import Passing
from yaie.worker.drafts import DraftRows, as_tensor
from yaie.worker.flat_batch import lay_out
from yaie.worker.picked import masks_of, pick
from yaie.worker.running_step import RunningStep

if TYPE_CHECKING:
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

    def await_draws(self, worker: "Worker", seats: Ints | None, step: int) -> None:
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


def _take_over(worker: "Worker", part: StepInput, passing: Passing) -> None:
    """Receive what was drawn for a part of a step, and note each seat's last token."""
    seats, rows = part.seats[part.samples], None
    if len(part.drafts):
        rows = DraftRows(part, np.cumsum(part.num_tokens, dtype=np.int32), worker.device)
    count = len(seats) if rows is None else len(rows.seats)
    drawn = torch.empty(count, dtype=torch.int64, device=worker.device)
    passing.draws.receive(drawn, passing.draws.size - 1).wait()
    if rows is None:
        index = as_tensor(seats.tolist(), worker.device)
        worker.seats.last_tokens.index_copy_(0, index, drawn.clamp(min=0))
        return
    gained = rows.accepted(drawn.tolist(), worker.accepted)
    pairs = [(seat, own[-1]) for seat, own in zip(seats.tolist(), gained, strict=True) if own]
    index, tokens = (as_tensor(list(part), worker.device) for part in zip(*pairs, strict=True))
    worker.seats.last_tokens.index_copy_(0, index, tokens)


class StagedStep:
    """See `yaie.core.contracts.StepHandle`. Results are whole on the last stage alone."""

    def __init__(self, worker: "Worker", stage: Stage, step: StepInput) -> None:
        self._worker = worker
        self._stage = stage
        self._step = step
        self._whole = RunningStep(worker, step)
        self._parts: list[RunningStep] = []

    @property
    def fault(self) -> Fault | None:
        """What has broken the step so far."""
        return self._whole.fault

    def begin(self) -> None:
        """Compute this stage's layers, and on the last one sample too, unless that waits for masks."""
        self._whole.guarded(self._begin)

    def mask(self, masks: StepMasks) -> None:
        """See the contract."""
        if self._stage.passing.is_last:
            self._whole.guarded(lambda: self._mask(masks))

    def result(self) -> StepResult:
        """See the contract."""
        result = StepResult(self._step.step)
        self._whole.guarded(lambda: self._collect(result))
        return result if self._whole.fault is None else self._whole.result()

    def _begin(self) -> None:
        worker, step, passing = self._worker, self._step, self._stage.passing
        self._whole.move()
        worker.seats.extend_tables(step)
        if not len(step.seats):
            return
        runs = passing.pipeline.microbatches(step.num_tokens.tolist(), passing.stages)
        self._parts = [RunningStep(worker, cut(step, run)) for run in runs]
        sizes = [int(part.step.num_tokens.sum()) for part in self._parts]
        passing.pipeline.run(sizes, self._compute, self._empty)

    def _empty(self, num_tokens: int) -> Tensor:
        adapter = self._worker.adapter
        return adapter.empty(num_tokens, adapter.config.hidden_size)

    def _compute(self, index: int, incoming: Tensor | None) -> Tensor:
        worker, stage, part = self._worker, self._stage, self._parts[index]
        if incoming is None:
            stage.await_draws(worker, part.step.seats, self._step.step)
        flat = lay_out(part.step, worker.seats, worker.pool, worker.device)
        attend = attend_through(worker.attention, worker.attention.plan(flat.attention))
        worker.before_forward()
        positions = flat.attention.positions
        if incoming is None:
            incoming = worker.adapter.embedded(flat.token_ids, positions)
        states = worker.adapter.continued(incoming, positions, attend)
        if stage.passing.is_last:
            part.finish(states)
            self._tell(part)
        else:
            stage.expect(part.step)
        return states

    def _tell(self, part: RunningStep) -> None:
        if part.drawn is not None:
            self._stage.tell(self._step.step, part.drawn)

    def _mask(self, masks: StepMasks) -> None:
        for part in self._parts:
            if part.waits:
                part.sample(masks_of(part.step, masks))
                self._tell(part)

    def _collect(self, result: StepResult) -> None:
        stage = self._stage
        if stage.passing.is_first:
            stage.await_draws(self._worker, None, self._step.step)
        if not stage.passing.is_last:
            return
        first = 0
        for part in self._parts:
            part.collect()
            _add(result, part.own_result, first)
            first += len(part.step.seats)
        stage.told(self._step.step)


def cut(step: StepInput, run: range) -> StepInput:
    """The step of a run of its rows, which nothing of it is left out of."""
    part = pick(step, np.arange(run.start, run.stop))
    asked = step.prompt_logprobs
    here = (asked >= run.start) & (asked < run.stop)
    part.prompt_logprobs = asked[here] - run.start if len(asked) else no_ints()
    rows = step.pooled[:, 0]
    pooled = step.pooled[(rows >= run.start) & (rows < run.stop)].copy()
    pooled[:, 0] -= run.start
    part.pooled = pooled
    return part


def _add(result: StepResult, part: StepResult, first: int) -> None:
    """Add the result of the rows from `first` on."""
    result.token_ids += part.token_ids
    result.corrupted += [first + row for row in part.corrupted]
    for name in ("logprobs", "prompt_logprobs", "pooled"):
        found = {first + row: value for row, value in getattr(part, name).items()}
        getattr(result, name).update(found)
