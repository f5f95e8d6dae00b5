"""A model of integers on a device: every step of it is exact, whatever the batch around it.

A token's key is a hash of token and position. A row's hidden state is a weighted sum of the keys that
its sequence's block table leads to, its logits are linear in that. A draw depends on logits, seat and
number of the draw.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grader.kit.expect import Fault
from grader.suites.cuda_graphs import rules
from grader.suites.cuda_graphs.device import StandIn
from yaie.core.batch import AttentionBatch
from yaie.core.step import Ints, StepInput

VOCAB, WIDTH, SEATS, BLOCK, MAX_BLOCKS = 32, 16, 12, 4, 6
MAX_LEN = BLOCK * MAX_BLOCKS
NUM_BLOCKS = SEATS * MAX_BLOCKS
PRIME = 1_000_003
TRASH = NUM_BLOCKS * BLOCK
"""The slot that the kernel writes nowhere else to: those of padding."""


def prompt_token(seat: int, position: int) -> int:
    """The token that control has sent for a seat's position."""
    return (seat * 11 + position * 7 + 4) % VOCAB


@dataclass
class Machine:
    """See `yaie.core.contracts.graphs.StepMachine`. Seats 0 to 11, and 12 of nobody.

    device: None for one whose tensors are the host's. sick: [seats + 1] bool, seats whose rows are not
    finite. seen: numbers of rows that a kernel was run with. host_tables: as control has sent them.
    computed: the tokens of the last step, by row.
    """

    device: StandIn | None = None

    def __post_init__(self) -> None:
        self.nobody = SEATS
        self.max_model_len = MAX_LEN
        self.tables = torch.zeros(SEATS + 1, MAX_BLOCKS, dtype=torch.int32)
        self.last_tokens = torch.zeros(SEATS + 1, dtype=torch.int64)
        self.counts = torch.zeros(SEATS + 1, dtype=torch.int64)
        self.sick = torch.zeros(SEATS + 1, dtype=torch.bool)
        self.keys = torch.zeros(TRASH + 1, dtype=torch.int64)
        self.computed = torch.zeros(64, dtype=torch.int64)
        self.num_known = np.ones(SEATS, dtype=np.int32)
        self.host_tables = np.zeros((SEATS + 1, MAX_BLOCKS), dtype=np.int32)
        self.seen: set[tuple[str, int]] = set()
        self.entered = 0
        self._places = torch.arange(BLOCK)
        self._all = torch.arange(MAX_LEN)
        self._weights = torch.arange(MAX_LEN) * 37 % 101 + 1
        self._columns = torch.arange(VOCAB) * 7919 % 997 + 1
        self._mixes = torch.arange(WIDTH) * 263 % 89 + 1
        self._rows = torch.arange(64)
        self._ones = torch.ones(SEATS + 1, dtype=torch.int64)
        if self.device is not None:
            self.device.hold(self.tables, self.last_tokens, self.counts, self.sick, self.keys)
            self.device.hold(self._places, self._all, self._weights, self._columns, self._ones)
            self.device.hold(self._mixes, self._rows, self.computed)

    def slots(self, step: StepInput) -> Ints:
        columns, offsets = np.divmod(step.positions, BLOCK)
        seats = step.seats.repeat(step.num_tokens)
        slots: Ints = self.host_tables[seats, columns] * BLOCK + offsets
        return slots

    def token_ids(self, step: StepInput) -> Ints:
        token_ids: list[int] = []
        drafts = iter(step.drafts.tolist())
        counts = step.num_drafts.tolist() or [0] * len(step.seats)
        shares = (step.seats, step.starts, step.num_tokens)
        for seat, start, count, guessed in zip(*(x.tolist() for x in shares), counts, strict=True):
            own = [prompt_token(seat, at) for at in range(start, start + count - guessed)]
            if start >= self.num_known[seat]:
                own[0] = ~seat
            token_ids += [*own, *(next(drafts) for _ in range(guessed))]
        return np.array(token_ids, dtype=np.int32)

    def extend_tables(self, step: StepInput) -> None:
        self.entered += 1
        with nullcontext() if self.device is None else self.device.aside():
            if self.device is not None:
                self.device.refuse_in_capture("tables are extended from the host", rules.PAGEABLE)
                self.device.idle_queue()
            entries = (step.table_seats, step.table_columns, step.table_blocks)
            for seat, column, block in zip(*(part.tolist() for part in entries), strict=True):
                self.tables[seat, column] = block

    def hidden(self, token_ids: Tensor, batch: AttentionBatch) -> Tensor:
        rows = len(token_ids)
        self._first("the model's kernels", rows)
        keys = (token_ids * 7907 + batch.positions * 131 + 17) * 1009 % PRIME
        slots = torch.where(batch.slot_mapping >= 0, batch.slot_mapping, TRASH)
        self.keys.index_copy_(0, slots, keys)
        self.computed[:rows].copy_(token_ids)
        # As a kernel finds the sequence of a row and the keys that it sees: from lengths alone.
        begins = batch.query_start_loc.long()
        sequence = torch.searchsorted(begins[1:], self._rows[:rows], right=True)
        is_any = sequence < len(begins) - 1
        sequence = sequence.clamp(max=len(begins) - 2)
        behind = begins.index_select(0, sequence + 1) - 1 - self._rows[:rows]
        lens = batch.seq_lens.long().index_select(0, sequence)
        counts = torch.where(is_any & (lens > 0), lens - behind, 0)
        tables = batch.block_tables.long().index_select(0, sequence)
        at = tables.unsqueeze(2) * BLOCK + self._places
        found = self.keys.index_select(0, at.flatten()).view(rows, MAX_LEN)
        seen = self._all < counts.unsqueeze(1)
        state = (torch.where(seen, found, 0) * self._weights).sum(1) % PRIME
        return state.unsqueeze(1) * self._mixes % PRIME

    def logits(self, hidden: Tensor) -> Tensor:
        self._first("the head's kernels", len(hidden))
        # As large as the states, and made before they are read: one takes their place if it is free.
        made = [self._mixes * 7 + hidden.new_zeros(hidden.shape) for _ in range(8)]
        state = (hidden * made[-1]).sum(1) % PRIME
        return (state.unsqueeze(1) * self._columns % 997).float()

    def sample(self, logits: Tensor, seats: Tensor) -> Tensor:
        if len(logits) != len(seats):
            problem = f"logits of {len(logits)} rows are drawn from, for {len(seats)} seats"
            raise Fault(problem, why=rules.ALL_ROWS)
        self._first("the sampler's kernels", len(seats))
        noise = (self.counts.index_select(0, seats) * 13 + seats * 29).unsqueeze(1)
        shifts = (noise * self._columns % 997).float()
        scores = (logits * 31 + shifts) % 997
        drawn = scores.argmax(1)
        return torch.where(self.sick.index_select(0, seats), -1, drawn)

    def count_draws(self, seats: Tensor) -> None:
        self.counts.index_add_(0, seats, self._ones[: len(seats)])

    def _first(self, what: str, rows: int) -> None:
        if (what, rows) in self.seen:
            return
        if self.device is not None and self.device.is_capturing:
            raise Fault(
                f"{what} run for the first time with {rows} rows in a capture", why=rules.WARM_UP
            )
        self.seen.add((what, rows))
