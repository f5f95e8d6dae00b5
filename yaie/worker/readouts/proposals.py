"""Drafts from the states of a step that has just been computed, for the next one."""

import time

import numpy as np
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts import BatchAttention, KVPool
from yaie.core.contracts.drafting import KeptOf
from yaie.core.step import Ints, StepInput, StepResult
from yaie.models.draft_head import DraftHead
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import attend_through, layout
from yaie.worker.readouts.base import Computed, Readout
from yaie.worker.rolling import columns, falling
from yaie.worker.transfer import on_device


class MtpDrafts:
    """The head behind a worker's model, on the same pool."""

    def __init__(
        self, head: DraftHead, attention: BatchAttention, pool: KVPool, kept: KeptOf
    ) -> None:
        """kept: lab 18's: which of a step's states hold."""
        self._head = head
        self._attention = attention
        self._pool = pool
        self._kept = kept

    def behind(
        self,
        step: StepInput,
        most: Ints,
        seats: InputBatch,
        hidden: Tensor,
        gained: list[list[int]],
    ) -> dict[int, list[int]]:
        """The drafts behind each row, at most so many, [n] int32.

        hidden: [T, d], the model's states. gained: what each row that samples has drawn. The head also
        stores the keys and values of every state that holds, also of rows that draft nothing.
        """
        device = hidden.device
        rows, places, tokens = self._to_compute(step, seats, gained)
        if not rows:
            return {}
        starts = step.starts[rows]
        lens = np.array([len(own) for own in tokens], np.int32)
        ahead = most[rows]
        width = -(-int((starts + lens + np.maximum(ahead - 1, 0)).max()) // self._pool.block_size)
        tables = seats.tables[:, :width].index_select(
            0, on_device(step.seats[rows].astype(np.int64), device)
        )
        index = np.concatenate(
            [np.arange(at, at + len(own)) for at, own in zip(places, tokens, strict=True)]
        )
        if len(index) < len(hidden) or (np.diff(index) != 1).any():
            hidden = hidden[on_device(index.astype(np.int64), device)]
        behind = on_device(np.concatenate(tokens).astype(np.int64), device)
        batch, _ = layout(self._pool, tables, starts, lens)
        states = self._forward(hidden, behind, batch)
        order = falling(ahead)
        if not order:
            return {}
        ends = np.cumsum(lens) - 1
        states = states[on_device(ends[order].astype(np.int64), device)]
        tables = tables[on_device(np.array(order, np.int64), device)]
        at, one = (starts + lens)[order].astype(np.int32), np.ones(len(order), np.int32)
        drawn = [self._head.first_choice(states)]
        for turn in range(1, int(ahead.max())):
            count = int((ahead > turn).sum())
            batch, _ = layout(self._pool, tables[:count], at[:count] + turn - 1, one[:count])
            states = self._forward(states[:count], drawn[-1][:count], batch)
            drawn.append(self._head.first_choice(states))
        return dict(zip([rows[row] for row in order], columns(drawn), strict=True))

    def _to_compute(
        self, step: StepInput, seats: InputBatch, gained: list[list[int]]
    ) -> tuple[list[int], list[int], list[Ints]]:
        """Rows with states that hold, single ones first; where the states of each begin in the flat
        batch, and the tokens behind them."""
        found: list[tuple[int, int, Ints]] = []
        gains = iter(gained)
        begins = (np.cumsum(step.num_tokens) - step.num_tokens).tolist()
        drafts = step.num_drafts if len(step.num_drafts) else np.zeros(len(step.seats), np.int32)
        for row, samples in enumerate(step.samples.tolist()):
            seat, start, count = (
                int(part[row]) for part in (step.seats, step.starts, step.num_tokens)
            )
            own = next(gains) if samples else []
            if samples and not own:
                continue  # nothing of it holds
            if samples:
                size = self._pool.block_size
                kept = self._kept(start, count, int(drafts[row]), len(own), size)
                num_held = kept.num_computed - start
            else:
                num_held = count
            known = seats.known_tokens(seat, start + 1, start + 1 + num_held - len(own))
            behind = np.concatenate([known, np.array(own, np.int32)])[:num_held]
            if len(behind) == num_held:
                found.append((row, begins[row], behind))
        found.sort(key=lambda one: len(one[2]) > 1)
        rows, places = [one[0] for one in found], [one[1] for one in found]
        return rows, places, [one[2] for one in found]

    def _forward(self, states: Tensor, tokens: Tensor, batch: AttentionBatch) -> Tensor:
        attend = attend_through(self._attention, self._attention.plan(batch))
        return self._head.forward(states, tokens, batch.positions, attend)


class Proposals(Readout):
    """asked: `most` [n] int32, how many drafts are wanted behind each of the `rows`, all of the step.
    told: `counts` [p] int32 and `tokens` [p, k] int32, the drafts made behind each of its `rows`, and
    `seconds` [1] float64, what making them took."""

    def __init__(self, mtp: MtpDrafts, computed: Computed) -> None:
        self._mtp = mtp
        self._computed: Computed | None = computed

    def collect(self, result: StepResult) -> None:
        computed, self._computed = self._computed, None
        assert computed is not None
        begin = time.perf_counter()
        most = computed.asked("proposals")["most"]
        made = self._mtp.behind(
            computed.step, most, computed.batch, computed.hidden, result.token_ids
        )
        tokens = np.zeros((len(made), int(most.max(initial=0))), np.int32)
        for place, own in enumerate(made.values()):
            tokens[place, : len(own)] = own
        result.extras["proposals"] = {
            "rows": np.array(list(made), np.int32),
            "counts": np.array([len(own) for own in made.values()], np.int32),
            "tokens": tokens,
            "seconds": np.array([time.perf_counter() - begin]),
        }
