"""`Worker`: carries out steps on one device, as they come in, in the thread that calls it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.contracts.drafting import Accepted
from yaie.core.contracts.graphs import DecodeSteps, MakeToHost, ToHost
from yaie.core.step import Fault, Ints, StepInput, StepMasks, StepResult
from yaie.models.adapter import ModelAdapter
from yaie.worker.blocks import move_blocks, store, taken
from yaie.worker.drafts import DraftRows
from yaie.worker.drawing import draw
from yaie.worker.finite import finite_chunks
from yaie.worker.flat_batch import lay_out
from yaie.worker.input_batch import InputBatch
from yaie.worker.mixed import MixedSteps
from yaie.worker.picked import answering, as_asked, longest_first, masks_of, pick
from yaie.worker.readouts import OF_LOGITS, READOUTS
from yaie.worker.readouts.base import Computed, MakeReadout, Readout
from yaie.worker.rows import Rows
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture, going_on
from yaie.worker.transfer import on_device

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens [n] int64 in the place of logits: each rank had its part of those."""

    token_ids: Tensor


class Worker:
    """See `yaie.core.contracts.Worker`. It owns model, attention, pool and sampler, and `batch`, the
    state of its seats.

    On a GPU `execute` returns once everything is queued there; on a CPU once it is computed.
    `decodes` and `mixed` may be set: they then carry out the steps that they take. note: what to know of
    that. `readouts`: by name, what a step may be asked for; more may be added.
    `split_sampler` may be set where ranks split the vocabulary: it then draws the rows without filters
    and rules, from this rank's logits.
    """

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
        self.decodes: DecodeSteps | None = None
        self.mixed: MixedSteps | None = None
        self.readouts: dict[str, MakeReadout] = dict(READOUTS)
        self.split_sampler: Sampler | None = None
        self.note = ""
        self.max_model_len = max_model_len
        max_blocks = -(-max_model_len // pool.block_size)
        self.batch = InputBatch(num_seats, max_blocks, adapter.vocab_size, device)

    def execute(self, step: StepInput) -> StepFuture:
        """Begin a step. What it raises becomes the fault of its result."""
        return StepFuture(step, self.stages(step), self.explain)

    def close(self) -> None:
        """Drop recorded steps: what they hold of other ranks can then be given back."""
        self.decodes = self.mixed = None

    def stages(self, step: StepInput) -> Stages:
        """A step, from its block moves to its result."""
        leaving = self.move(step)
        if self._is_replayed(step):
            order = longest_first(step)
            result = yield from self._replayed(pick(step, order))
            result = as_asked(result, step, order)
        else:
            self.batch.extend_tables(step)
            result = yield from self._computed(step) if len(step.seats) else _idle(step)
        if leaving is not None:
            result.extras["leaving"] = {"data": leaving.get().numpy()}
        return result

    def move(self, step: StepInput) -> ToHost | None:
        """Take over seats that change hands, and move blocks; returns those that leave."""
        if step.new is not None:
            self.batch.enter(step.new)
        move_blocks(self.pool, step)
        leaving = None
        if step.extras:
            if "arriving" in step.extras:
                store(self.pool, self.adapter, step.extras["arriving"])
            if "leaving" in step.extras:
                blocks = step.extras["leaving"]["blocks"]
                leaving = self.to_host(taken(self.pool, self.adapter, blocks))
        self.batch.note_blocks(step)
        return leaving

    def _is_replayed(self, step: StepInput) -> bool:
        if self.decodes is None or not len(step.seats) or not step.extras.keys() <= OF_LOGITS:
            return False
        return self.decodes.takes(step)

    def _replayed(self, step: StepInput) -> Stages:
        """A step of decodes, as lab 17 carries it out."""
        assert self.decodes is not None
        self.before_forward()
        logits = self.decodes.forward(step)
        rows, readouts = None, []
        if self.batch.is_plain(step.seats) and not step.masked and not step.extras:
            drawn = self.to_host(self.decodes.draw(len(step.seats)))
        else:
            if self.split_sampler is not None:
                logits = self.adapter.joined(logits)
            rows = self.batch.rows(step.seats)
            readouts = self._readouts(step, np.cumsum(step.num_tokens, dtype=np.int32), None)
            masks = (yield FOR_MASKS) if step.masked else None
            drawn = self._drawn(step, rows, logits, masks, readouts)
        del logits
        yield FOR_THE_END
        return self._collected(step, rows, drawn, readouts)

    def _computed(self, step: StepInput) -> Stages:
        """A step of any kind, without its prompts if the device has no memory for them."""
        fits = True
        try:
            stages = self.answer(step, self.forward(step))
            waits = next(stages)
        except torch.OutOfMemoryError:
            rows = answering(step, self.batch.num_known)
            if not self.adapter.shard.is_whole or len(rows) == len(step.seats):
                raise  # other ranks have memory, and wait for this one; or there are no prompts
            fits = False
        if fits:
            return (yield from going_on(stages, waits))
        # Outside of the handler, whose frames hold tensors.
        logger.warning(
            "no memory for %d prompts of step %d", len(step.seats) - len(rows), step.step
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        rest = pick(step, rows)
        if not len(rows):
            return as_asked((yield from _idle(step)), step, rows)
        return as_asked((yield from self.answer(rest, self.forward(rest))), step, rows)

    def forward(self, step: StepInput) -> Tensor:
        """The model's states [T, hidden] of a step's tokens."""
        if self.mixed is not None and self.mixed.takes(step):
            self.before_forward()
            return self.mixed.forward(step)
        flat = lay_out(step, self.batch, self.pool, self.device)
        attend = attend_through(self.attention, self.attention.plan(flat.attention))
        self.before_forward()
        return self.adapter.forward(flat.token_ids, flat.attention.positions, attend)

    def answer(self, step: StepInput, hidden: Tensor) -> Stages:
        """From the states [T, hidden] of a step's tokens to its result."""
        ends = np.cumsum(step.num_tokens, dtype=np.int32)
        finite = finite_chunks(hidden, step)
        all_finite = None if finite is None else self.to_host(finite)
        readouts = self._readouts(step, ends, hidden)
        rows = drawn = None
        if step.samples.any():
            rows, hidden = self._rows(step, ends, hidden)
            logits = self._logits(step, rows, hidden)
            del hidden
            masks = (yield FOR_MASKS) if step.masked else None
            drawn = self._drawn(step, rows, logits, masks, readouts)
            del logits
        else:
            del hidden
        yield FOR_THE_END
        return self._collected(step, rows, drawn, readouts, all_finite)

    def _readouts(self, step: StepInput, ends: Ints, hidden: Tensor | None) -> list[Readout]:
        """What the step is asked for."""
        if not step.extras:
            return []
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

    def _logits(self, step: StepInput, rows: Rows, hidden: Tensor) -> Tensor | Drawn:
        """The logits [n, vocab] of the rows; where ranks have a part of them each and nothing is asked
        that needs them whole, what is drawn."""
        shard = self.adapter.shard
        if shard.size > 1 and not step.masked and not step.extras:
            if self.split_sampler is not None and rows.is_plain:
                held = self.adapter.held_logits(hidden)
                return Drawn(self.split_sampler.sample(held, rows.batch))
            if rows.takes_the_best:
                return Drawn(self.adapter.first_choice(hidden))
        return self.adapter.logits(hidden)

    def _drawn(
        self,
        step: StepInput,
        rows: Rows,
        logits: Tensor | Drawn,
        masks: StepMasks | None,
        readouts: list[Readout],
    ) -> ToHost:
        """What the rows draw, on its way to the host."""
        if isinstance(logits, Drawn):
            drawn = logits.token_ids
        else:
            for readout in readouts:
                readout.see(logits, rows)
            own = None if masks is None else masks_of(step, masks)
            drawn = draw(logits, rows, own, self.sampler)
            for readout in readouts:
                readout.drew(drawn)
        self.advance(step, rows, drawn)
        return self.to_host(drawn)

    def advance(self, step: StepInput, rows: Rows, drawn: Tensor) -> None:
        """The rows' seats move on by what they have drawn, [n] int64; with drafts later, when it is
        known what counts."""
        self.batch.advance(rows, drawn, None if rows.drafts is None else rows.drafts.plain)

    def _collected(
        self,
        step: StepInput,
        rows: Rows | None,
        drawn: ToHost | None,
        readouts: list[Readout],
        all_finite: ToHost | None = None,
    ) -> StepResult:
        """Wait for what was drawn, and for all that was asked for."""
        result = StepResult(step.step)
        if drawn is not None:
            draws = drawn.get().tolist()
            if rows is None or rows.drafts is None:
                result.token_ids = [[token] if token >= 0 else [] for token in draws]
            else:
                result.token_ids = rows.drafts.accepted(draws, self.accepted)
                rows.drafts.settle(self.batch, rows, draws, result.token_ids)
            if min(draws) < 0:
                sampling = np.flatnonzero(step.samples).tolist()
                pairs = zip(sampling, result.token_ids, strict=True)
                result.corrupted = [row for row, own in pairs if not own]
        if all_finite is not None:
            finite = all_finite.get().tolist()
            first = len(step.seats) - len(finite)
            bad = {row for row, is_fine in enumerate(finite, first) if not is_fine}
            result.corrupted = sorted(bad | set(result.corrupted))
        for readout in readouts:
            readout.collect(result)
        return result


def _idle(step: StepInput) -> Stages:
    """A step that computes nothing."""
    yield FOR_THE_END
    return StepResult(step.step)


def _nothing() -> None:
    pass
