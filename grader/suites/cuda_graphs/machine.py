"""A model of integers on a device: every step of it is exact, whatever the batch around it.

A token's key is a hash of token and position. A row's state is a weighted sum of the keys that its
seat's block table leads to, its logits are linear in that. A draw depends on logits, seat and number of
the draw.
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

VOCAB, SEATS, BLOCK, MAX_BLOCKS = 32, 12, 4, 6
MAX_LEN = BLOCK * MAX_BLOCKS
NUM_BLOCKS = SEATS * MAX_BLOCKS
PRIME = 1_000_003
TRASH = NUM_BLOCKS * BLOCK
"""The slot that the kernel writes nowhere else to: those of padding."""


@dataclass
class Machine:
    """See `yaie.core.contracts.graphs.StepMachine`. Seats 0 to 11, and 12 of nobody.

    device: None for one whose tensors are the host's. sick: [seats + 1] bool, seats whose rows are not
    finite. seen: numbers of rows that a kernel was run with. host_tables: as control has sent them.
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
        self.num_known = np.ones(SEATS, dtype=np.int32)
        self.host_tables = np.zeros((SEATS + 1, MAX_BLOCKS), dtype=np.int32)
        self.seen: set[tuple[str, int]] = set()
        self.entered = 0
        self._places = torch.arange(BLOCK)
        self._all = torch.arange(MAX_LEN)
        self._weights = torch.arange(MAX_LEN) * 37 % 101 + 1
        self._columns = torch.arange(VOCAB) * 7919 % 997 + 1
        self._ones = torch.ones(SEATS + 1, dtype=torch.int64)
        if self.device is not None:
            self.device.hold(self.tables, self.last_tokens, self.counts, self.sick, self.keys)
            self.device.hold(self._places, self._all, self._weights, self._columns, self._ones)

    def slots(self, step: StepInput) -> Ints:
        columns, offsets = np.divmod(step.starts, BLOCK)
        slots: Ints = self.host_tables[step.seats, columns] * BLOCK + offsets
        return slots

    def extend_tables(self, step: StepInput) -> None:
        self.entered += 1
        with nullcontext() if self.device is None else self.device.aside():
            if self.device is not None:
                self.device.refuse_in_capture("tables are extended from the host", rules.PAGEABLE)
                self.device.idle_queue()
            entries = (step.table_seats, step.table_columns, step.table_blocks)
            for seat, column, block in zip(*(part.tolist() for part in entries), strict=True):
                self.tables[seat, column] = block

    def logits(self, token_ids: Tensor, batch: AttentionBatch) -> Tensor:
        self._first("the model's kernels", len(token_ids))
        keys = (token_ids * 7907 + batch.positions * 131 + 17) * 1009 % PRIME
        slots = torch.where(batch.slot_mapping >= 0, batch.slot_mapping, TRASH)
        self.keys.index_copy_(0, slots, keys)
        at = batch.block_tables.long().unsqueeze(2) * BLOCK + self._places
        found = self.keys.index_select(0, at.flatten()).view(len(token_ids), MAX_LEN)
        seen = self._all < batch.seq_lens.unsqueeze(1)
        state = (torch.where(seen, found, 0) * self._weights).sum(1) % PRIME
        return (state.unsqueeze(1) * self._columns % 997).float()

    def sample(self, logits: Tensor, seats: Tensor) -> Tensor:
        if len(logits) != len(seats):
            problem = f"logits of {len(logits)} rows are drawn from, for {len(seats)} seats"
            raise Fault(problem, why=rules.ALL_ROWS)
        self._first("the sampler's kernels", len(seats))
        noise = (self.counts.index_select(0, seats) * 13 + seats * 29).unsqueeze(1)
        # As large as the logits, and made before they are read: it takes their place if it is free.
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
