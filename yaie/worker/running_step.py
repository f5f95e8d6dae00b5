"""`RunningStep`: one step on its way through a worker, from its block moves to its result."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.contracts.graphs import DecodeSteps, ToHost
from yaie.core.step import Fault, Ints, StepInput, StepMasks, StepResult
from yaie.worker.blocks import move_blocks, store, taken
from yaie.worker.drafts import DraftRows, as_tensor, gains, rows_of
from yaie.worker.drawing import draw
from yaie.worker.flat_batch import lay_out
from yaie.worker.logprobs import token_logprobs
from yaie.worker.picked import Picked, answering, as_asked, longest_first, masks_of, pick
from yaie.worker.sampling import Rows
from yaie.worker.state_outputs import finite_chunks, logprobs_of_prompts, pooled_sums
from yaie.worker.transfer import on_device

if TYPE_CHECKING:
    from yaie.worker.worker import Worker

logger = logging.getLogger(__name__)


class RunningStep:
    """See `yaie.core.contracts.StepHandle`.

    drawn: what the sampler drew, row by row, [n] int64 on the device; None before.
    """

    def __init__(self, worker: "Worker", step: StepInput) -> None:
        self._worker = worker
        self._whole = self._step = step
        self._picked: Picked | None = None
        self._result = StepResult(step.step)
        self._rows: Rows | None = None
        self._drafts: DraftRows | None = None
        self._logits: Tensor | None = None
        self._hidden: Tensor | None = None
        self._drawn: ToHost | None = None
        self._chunks_finite: ToHost | None = None
        self._pooled: ToHost | None = None
        self._leaving: ToHost | None = None
        self.drawn: Tensor | None = None
        self._best: Tensor | None = None

    @property
    def step(self) -> StepInput:
        """What is computed."""
        return self._step

    @property
    def waits(self) -> bool:
        """Whether it has yet to sample."""
        return self._logits is not None or self._best is not None

    @property
    def own_result(self) -> StepResult:
        """What is known of the result."""
        return self._result

    @property
    def fault(self) -> Fault | None:
        """What has broken the step so far."""
        return self._result.fault

    def mask(self, masks: StepMasks) -> None:
        """See the contract."""
        if self._picked is not None:
            masks = masks_of(self._step, masks)
        if len(self._step.seats):  # otherwise all of it was shed
            self.guarded(lambda: self.sample(masks))

    def result(self) -> StepResult:
        """See the contract."""
        self.guarded(self.collect)
        if self._picked is not None and self._result.fault is None:
            return as_asked(self._result, self._whole, self._picked)
        return self._result

    @torch.inference_mode()
    def guarded(self, work: Callable[[], None]) -> None:
        """Do this part of the step, unless an earlier one has failed."""
        if self._result.fault is not None:
            return
        try:
            work()
        except (Exception, SystemExit) as error:  # a learner's part may even raise SystemExit
            logger.error("a step failed", exc_info=True)
            self._result = StepResult(self._step.step, fault=self._worker.explain(error))
            # The error's frames hold tensors; without them the old pool can go before a new one comes.
            self._logits = self._rows = self._hidden = None

    def begin(self) -> None:
        """Everything up to the logits, and sampling too unless it waits for masks."""
        worker, step = self._worker, self._step
        self.move()
        replays = worker.decodes is not None and len(step.seats) and not len(step.ahead)
        if worker.decodes is not None and replays and worker.decodes.takes(step):
            self._pick(longest_first(step))
            self._replay(worker.decodes)
            return
        worker.seats.extend_tables(step)
        if len(step.seats) == 0:
            return
        if not self._fits():  # outside of its handler, whose frames hold tensors
            self._shed_prompts()

    def move(self) -> None:
        """Take over seats that change hands, and move blocks."""
        worker, step = self._worker, self._step
        if step.new is not None:
            worker.seats.enter(step.new)
            worker.sampling.enter(step.new)
        move_blocks(worker.pool, step)
        if step.arriving is not None:
            store(worker.pool, worker.adapter, step.arriving)
        if len(step.leaving):
            self._leaving = worker.to_host(taken(worker.pool, worker.adapter, step.leaving))
        worker.seats.note_blocks(step)

    def _pick(self, rows: Picked) -> None:
        self._picked, self._step = rows, pick(self._whole, rows)

    def _replay(self, decodes: DecodeSteps) -> None:
        worker, step = self._worker, self._step
        worker.before_forward()
        self._logits = decodes.forward(step)
        if worker.sampling.is_plain(step.seats):
            self._logits = None
            self._drawn = worker.to_host(decodes.draw(len(step.seats)))
            return
        if worker.split_sampler is not None:
            self._logits = worker.adapter.joined(self._logits)
        self._rows = worker.sampling.rows(step.seats)
        if not step.masked:
            self.sample(None)

    def _fits(self) -> bool:
        """Compute the step; False if there is no memory for its prompts."""
        try:
            self._compute()
        except torch.OutOfMemoryError:
            if not self._worker.adapter.shard.is_whole:
                raise  # the other ranks have memory, and wait for this one
            if len(answering(self._step, self._worker.seats.num_known)) == len(self._step.seats):
                raise
            return False
        return True

    def _compute(self) -> None:
        worker, step = self._worker, self._step
        if worker.mixed is not None and worker.mixed.takes(step):
            worker.before_forward()
            hidden = worker.mixed.forward(step)
        else:
            flat = lay_out(step, worker.seats, worker.pool, worker.device)
            attend = attend_through(worker.attention, worker.attention.plan(flat.attention))
            worker.before_forward()
            hidden = worker.adapter.forward(flat.token_ids, flat.attention.positions, attend)
        self._hidden = hidden if len(step.ahead) else None
        self.finish(hidden)

    def finish(self, hidden: Tensor) -> None:
        """Go on from the model's states [T, hidden] of this step's tokens."""
        step = self._step
        ends = np.cumsum(step.num_tokens, dtype=np.int32)
        self._read_states(hidden, ends)
        self._choose_rows(hidden, ends)
        if self._rows is not None and not step.masked:
            self.sample(None)

    def _shed_prompts(self) -> None:
        """Compute the step again without its prompts."""
        worker, step = self._worker, self._step
        rows = answering(step, worker.seats.num_known)
        logger.warning(
            "no memory for %d prompts of step %d", len(step.seats) - len(rows), step.step
        )
        self._pick(rows)
        self._logits = self._rows = self._chunks_finite = self._pooled = None
        self._result = StepResult(step.step)
        if worker.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(rows):
            self._compute()

    def _read_states(self, hidden: Tensor, ends: Ints) -> None:
        """What the result has of the states besides sampled tokens."""
        worker, step = self._worker, self._step
        finite, sums = finite_chunks(hidden, step), pooled_sums(hidden, step, ends)
        self._chunks_finite = None if finite is None else worker.to_host(finite)
        self._pooled = None if sums is None else worker.to_host(sums)
        self._result.prompt_logprobs |= logprobs_of_prompts(hidden, step, ends, worker)

    def _choose_rows(self, hidden: Tensor, ends: Ints) -> None:
        worker, step = self._worker, self._step
        if not step.samples.any():
            return
        if len(step.drafts):
            self._drafts = DraftRows(step, ends, worker.device)
            seats, places = self._drafts.seats, self._drafts.places
            self._lives = worker.seats.lives[seats]
        else:
            seats, places = step.seats[step.samples], ends[step.samples] - 1
        if len(places) != len(hidden):
            hidden = hidden[on_device(places, worker.device).long()]
        self._rows = worker.sampling.rows(seats)
        if self._drafts is not None:
            self._drafts.shift(self._rows.batch)
        if worker.split_sampler is not None and self._rows.is_plain:
            held = worker.adapter.held_logits(hidden)
            self._best = worker.split_sampler.sample(held, self._rows.batch)
        elif worker.adapter.shard.size > 1 and self._rows.takes_the_best:
            self._best = worker.adapter.first_choice(hidden)
        else:
            self._logits = worker.adapter.logits(hidden)

    def sample(self, masks: StepMasks | None) -> None:
        """Draw from the logits that are there."""
        rows, worker = self._rows, self._worker
        assert rows is not None
        logits, drawn, raw = self._logits, self._best, None
        self._logits = self._best = None
        if drawn is None:
            assert logits is not None
            raw = logits[rows.told_index] if rows.told else None
            drawn = draw(logits, rows, masks, worker.sampler)
        plain = None if self._drafts is None else self._drafts.plain
        index, tokens = (part if plain is None else part[plain] for part in (rows.index, drawn))
        worker.seats.last_tokens.index_copy_(0, index, tokens.clamp(min=0))
        worker.sampling.advance(rows, drawn, plain)
        self.drawn = drawn
        self._drawn = worker.to_host(drawn)
        if raw is not None:
            self._logprobs = token_logprobs(raw, drawn[rows.told_index], rows.num_top, rows.named)

    def collect(self) -> None:
        """Read what was drawn, and which rows are corrupted."""
        result, samples = self._result, self._step.samples
        if self._drawn is not None:
            draws = self._drawn.get().tolist()
            if self._drafts is None:
                result.token_ids = [[token] if token >= 0 else [] for token in draws]
            else:
                result.token_ids = self._drafts.accepted(draws, self._worker.accepted)
                self._settle_drafts(draws)
            self._sort_logprobs()
            if min(draws) < 0:
                sampling = np.flatnonzero(samples).tolist()
                pairs = zip(sampling, result.token_ids, strict=True)
                result.corrupted = [row for row, own in pairs if not own]
        if self._pooled is not None:
            rows = self._step.pooled[:, 0].tolist()
            result.pooled = dict(zip(rows, self._pooled.get().numpy().copy(), strict=True))
        if self._leaving is not None:
            result.blocks = self._leaving.get().numpy()
        if self._chunks_finite is not None:
            finite = self._chunks_finite.get().tolist()
            first = len(samples) - len(finite)
            bad = {row for row, is_fine in enumerate(finite, first) if not is_fine}
            result.corrupted = sorted(bad | set(result.corrupted))
        self._draft_ahead()

    def _draft_ahead(self) -> None:
        """Have the head draft behind what was drawn."""
        worker, step, result = self._worker, self._step, self._result
        if worker.mtp is None or self._hidden is None:
            return
        begin = time.perf_counter()
        hidden, self._hidden = self._hidden, None
        result.drafts = worker.mtp.behind(step, worker.seats, hidden, result.token_ids)
        result.draft_seconds = time.perf_counter() - begin

    def _sort_logprobs(self) -> None:
        rows = self._rows
        if rows is None or not rows.told:
            return
        entries = dict(zip(rows.told, self._logprobs, strict=True))
        row = 0
        counts = self._step.num_drafts[self._step.samples] if self._drafts else None
        for position, place in enumerate(np.flatnonzero(self._step.samples).tolist()):
            own = self._result.token_ids[position]
            if row in entries and own:
                self._result.logprobs[place] = [entries[row + i] for i in range(len(own))]
            row += 1 if counts is None else int(counts[position]) + 1

    def _settle_drafts(self, draws: list[int]) -> None:
        """Move on the seats that had drafts, by what was accepted of them."""
        worker, rows = self._worker, self._rows
        assert self._drafts is not None and rows is not None  # noqa: PT018
        lives = worker.seats.lives  # of a seat that a later step has given away, nothing is settled
        found = self._drafts.of_drafts(self._result.token_ids)
        gained = [one for one in found if lives[one[1]] == self._lives[one[0]]]
        seats, tokens, counts = on_device(gains(gained), worker.device)
        worker.seats.last_tokens.index_copy_(0, seats, tokens)
        worker.sampling.count_gains(seats, counts)
        if rows.count_rows is not None:  # the next step waits for all this: as few copies as can be
            asked = (as_tensor(one, worker.device) for one in (draws, rows_of(gained)))
            worker.sampling.count_tokens(rows, *asked)
