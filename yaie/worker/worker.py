"""`Worker`: carries out steps on one device, as they come in, in the thread that calls it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.contracts.drafting import Accepted
from yaie.core.contracts.graphs import MakeToHost, ToHost
from yaie.core.step import Fault, Ints, StepInput, StepMasks, StepResult
from yaie.models.adapter import ModelAdapter
from yaie.worker.blocks import move_blocks, store, taken
from yaie.worker.drafts import DraftRows
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import attend_through, lay_out
from yaie.worker.readouts import READOUTS
from yaie.worker.readouts.base import Computed, MakeReadout, Readout
from yaie.worker.replaying import Begun, Replaying
from yaie.worker.row_order import RowOrder, answering, as_asked, masks_of, pick
from yaie.worker.rows import Rows
from yaie.worker.rules.masks import apply_masks
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture
from yaie.worker.transfer import on_device

logger = logging.getLogger(__name__)


class Worker(Replaying):
    """See `yaie.core.contracts.Worker`. It owns model, attention, pool and sampler, and `batch`, the
    state of its seats.

    On a GPU `execute` returns once everything is queued there; on a CPU once it is computed.
    `readouts`: by name, what a step may be asked for; more may be added.
    `split_sampler` may be set where ranks split the vocabulary: it then draws the rows without filters
    and rules, from this rank's logits.
    """

    computes_again: ClassVar[bool] = True
    """Whether tokens may be computed a second time, after a step that broke off."""

    def __init__(
        self,
        adapter: ModelAdapter,
        attention: BatchAttention,
        pool: KVPool,
        sampler: Sampler,
        device: torch.device,
        *,
        num_seats: int,
        max_model_len: int,
        explain: Callable[[BaseException], Fault],
        to_host: MakeToHost,
        accepted: Accepted,
    ) -> None:
        """explain: an exception as data, which tells whose code it came from. to_host: begins to copy a
        tensor to the host (lab 17). accepted: which samples count (lab 18).

        `before_forward` may be set: it is called when all is ready for a step's model.
        """
        self.adapter = adapter
        self.attention = attention
        self.pool = pool
        self.sampler = sampler
        self.device = device
        self.explain = explain
        self.to_host = to_host
        self.accepted = accepted
        self.before_forward: Callable[[], None] = _nothing
        self.readouts: dict[str, MakeReadout] = dict(READOUTS)
        self.split_sampler: Sampler | None = None
        self.max_model_len = max_model_len
        max_blocks = -(-max_model_len // pool.block_size)
        self.batch = InputBatch(num_seats, max_blocks, adapter.vocab_size, device)

    def execute(self, step: StepInput) -> StepFuture:
        """Begin a step: `StepFuture` runs its stages. What they raise is the fault of its result."""
        return StepFuture(step, self.stages(step), self.explain)

    def stages(self, step: StepInput) -> Stages:
        """A step, from its block moves to its result."""
        leaving = self.move(step)
        begun, order = self._compute(step)
        if begun.logits is not None:
            self.draw(begun, (yield FOR_MASKS))
        yield FOR_THE_END
        result = self.collect(begun)
        if order is not None:
            result = as_asked(result, step, order)
        if leaving is not None:
            result.extras["leaving"] = {"data": leaving.get().numpy()}
        return result

    def move(self, step: StepInput) -> ToHost | None:
        """Take over seats that change hands, and move blocks; returns those that leave."""
        if step.new is not None:
            self.batch.enter(step.new)
        if len(step.swap_out) or len(step.swap_in) or len(step.copies):
            move_blocks(self.pool, step)
        leaving = None
        if step.extras:
            if "arriving" in step.extras:
                store(self.pool, self.adapter, step.extras["arriving"])
            if "leaving" in step.extras:
                blocks = step.extras["leaving"]["blocks"]
                leaving = self.to_host(taken(self.pool, self.adapter, blocks))
        if len(step.table_seats):
            self.batch.note_blocks(step)
        return leaving

    def _compute(self, step: StepInput) -> tuple[Begun, RowOrder | None]:
        """A step of any kind, and the order of its rows; None for theirs. If the device has no memory
        for its prompts, without them."""
        if not len(step.seats):
            self.batch.extend_tables(step)
            return Begun(step), None
        try:
            if self.runner is not None and self.runner.takes(step):
                return self._replay(step, self.runner)
            return self.begin(step, self.forward(step)), None
        except torch.OutOfMemoryError:
            rows = answering(step, self.batch.num_known)
            if not self.adapter.shard.is_whole or len(rows) == len(step.seats):
                raise  # other ranks have memory, and wait for this one; or there are no prompts
        # Outside of the handler, whose frames hold tensors.
        logger.warning(
            "no memory for %d prompts of step %d", len(step.seats) - len(rows), step.step
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        rows = rows if self.computes_again else rows[:0]
        rest = pick(step, rows)
        return self.begin(rest, self.forward(rest)) if len(rows) else Begun(rest), rows

    def forward(self, step: StepInput) -> Tensor:
        """The model's states [T, hidden] of a step's tokens, launch by launch."""
        self.batch.extend_tables(step)
        token_ids, batch = lay_out(step, self.batch, self.pool)
        attend = attend_through(self.attention, self.attention.plan(batch))
        self.before_forward()
        return self.adapter.forward(token_ids, batch.positions, attend)

    def begin(self, step: StepInput, hidden: Tensor) -> Begun:
        """Go on from the states [T, hidden] of a step's tokens. It draws, unless it waits for masks."""
        ends = np.cumsum(step.num_tokens, dtype=np.int32)
        begun = Begun(step)
        if step.extras:
            begun.readouts = self._readouts(step, ends, hidden)
        if step.num_tokens[-1] > 1 or not step.samples.all():  # single tokens come first
            begun.all_finite = self.to_host(finite_chunks(hidden, step))
        if step.samples.any():
            begun.rows, hidden = self._rows(step, ends, hidden)
            drawn = None
            if self.adapter.shard.size > 1 and not step.masked and not step.extras:
                drawn = self._drawn_from_parts(begun.rows, hidden)
            if drawn is not None:
                self._note(begun, drawn)
            else:
                begun.logits = self.adapter.logits(hidden)
                if not step.masked:
                    self.draw(begun, None)
        return begun

    def _readouts(self, step: StepInput, ends: Ints, hidden: Tensor) -> list[Readout]:
        """What the step is asked for."""
        computed = Computed(step, ends, hidden, self.batch, self.adapter.logits, self.to_host)
        return [make(computed) for name, make in self.readouts.items() if name in step.extras]

    def _rows(self, step: StepInput, ends: Ints, hidden: Tensor) -> tuple[Rows, Tensor]:
        """The rows that draw, and the state that each is drawn from."""
        if len(step.drafts):
            drafts = DraftRows(step, ends, self.batch.lives, self.device)
            places = drafts.places
            # A copy: the next step of the same seats has other drafts.
            rows = replace(self.batch.rows(drafts.seats), drafts=drafts)
            rows.batch.steps = rows.batch.steps + drafts.offsets
        else:
            rows, places = self.batch.rows(step.seats[step.samples]), ends[step.samples] - 1
        if len(places) != len(hidden):
            hidden = hidden[on_device(places, self.device).long()]
        return rows, hidden

    def _drawn_from_parts(self, rows: Rows, hidden: Tensor) -> Tensor | None:
        """Where each rank has a part of the logits: what is drawn from states [n, hidden], [n] int64.
        None if they are needed whole."""
        if self.split_sampler is not None and rows.is_plain:
            return self.split_sampler.sample(self.adapter.local_logits(hidden), rows.batch)
        return self.adapter.first_choice(hidden) if rows.takes_the_best else None

    def draw(self, begun: Begun, masks: StepMasks | None) -> None:
        """Draw from the logits that are there."""
        rows, logits, begun.logits = begun.rows, begun.logits, None
        assert rows is not None
        assert logits is not None
        for readout in begun.readouts:
            readout.see(logits, rows)
        own = None if masks is None else masks_of(begun.step, masks)
        drawn = sample_rows(logits, rows, own, self.sampler)
        for readout in begun.readouts:
            readout.drew(drawn)
        self._note(begun, drawn)

    def _note(self, begun: Begun, drawn: Tensor) -> None:
        assert begun.rows is not None
        self.advance(begun.step, begun.rows, drawn)
        begun.drawn = self.to_host(drawn)

    def advance(self, step: StepInput, rows: Rows, drawn: Tensor) -> None:
        """The rows' seats move on by what they have drawn, [n] int64; with drafts later, when it is
        known what counts."""
        self.batch.advance(rows, drawn, None if rows.drafts is None else rows.drafts.plain)

    def collect(self, begun: Begun) -> StepResult:
        """Wait for what was drawn, and for all that was asked for."""
        step, rows = begun.step, begun.rows
        result = StepResult(step.step)
        if begun.drawn is not None:
            draws = begun.drawn.get().tolist()
            if rows is None or rows.drafts is None:
                result.token_ids = [[token] if token >= 0 else [] for token in draws]
            else:
                result.token_ids = rows.drafts.accepted(draws, self.accepted)
                rows.drafts.settle(self.batch, rows, draws, result.token_ids)
            if min(draws) < 0:
                sampling = np.flatnonzero(step.samples).tolist()
                pairs = zip(sampling, result.token_ids, strict=True)
                result.corrupted = [row for row, own in pairs if not own]
        if begun.all_finite is not None:
            finite = begun.all_finite.get().tolist()
            first = len(step.seats) - len(finite)
            bad = {row for row, is_fine in enumerate(finite, first) if not is_fine}
            result.corrupted = sorted(bad | set(result.corrupted))
        for readout in begun.readouts:
            readout.collect(result)
        return result


def _nothing() -> None:
    pass


def sample_rows(logits: Tensor, rows: Rows, masks: StepMasks | None, sampler: Sampler) -> Tensor:
    """Rules, masks, then the sampler: a token for each row of `logits` [n, vocab] float32, as [n] int64.

    Overwrites the logits. Raises ValueError for a sampler that returns another shape.
    """
    for rule in tuple(rows.rules):  # one that is over leaves
        rule.apply(logits, rows)
    if masks is not None:
        apply_masks(logits, rows, masks)
    drawn = sampler.sample(logits, rows.batch)
    if drawn.shape != rows.index.shape:
        shapes = f"{list(drawn.shape)}, not {list(rows.index.shape)}"
        raise ValueError(
            f"the sampler must return one token id for each row: its shape is {shapes}"
        )
    return drawn


def finite_chunks(hidden: Tensor, step: StepInput) -> Tensor:
    """Whether the states of each chunk are finite, [chunks] bool: of a step that has some. The sampler
    checks all other rows."""
    lens, samples = step.num_tokens, step.samples
    first = int(np.argmax((lens > 1) | ~samples))
    begin = int(lens[:first].sum())
    bad = ~hidden[begin:].sum(dim=1, dtype=torch.float32).isfinite()
    # How many bad rows stand before each border: their difference is a chunk's own.
    before = torch.nn.functional.pad(bad.cumsum(0), (1, 0))
    borders = np.concatenate(([0], np.cumsum(lens[first:])))
    counts = before[on_device(borders, hidden.device)].diff()
    return counts == 0
