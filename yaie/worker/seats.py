"""What a worker keeps of each seat from step to step: prompt, block table, last token."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from yaie.core.step import Ints, NewSeats, StepInput
from yaie.worker.transfer import to_device


class Seats:
    """The state of `num_seats` seats, and behind them of one that is nobody's: padding has it.

    tables: [num_seats + 1, max_blocks] int32, on the device. last_tokens: [num_seats + 1] int64, on the
    device, the token that each seat drew last. nobody: the number of nobody's seat. num_known,
    num_prompt: [num_seats] int32 on the host, how many tokens control has sent, and how many of these
    are prompt. lives: [num_seats] int64 on the host, how often each seat has changed hands.
    """

    def __init__(self, num_seats: int, max_blocks: int, device: torch.device) -> None:
        self.nobody = num_seats
        self.tables = torch.zeros(num_seats + 1, max_blocks, dtype=torch.int32, device=device)
        self.last_tokens = torch.zeros(num_seats + 1, dtype=torch.int64, device=device)
        self.num_known = np.zeros(num_seats, dtype=np.int32)
        self.num_prompt = np.zeros(num_seats, dtype=np.int32)
        self.lives = np.zeros(num_seats, dtype=np.int64)
        self._host_tables = np.zeros((num_seats + 1, max_blocks), dtype=np.int32)
        self.singles: Any = None  # of the last step, see `flat_batch.Singles`
        self._tokens: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * num_seats
        self._device = device

    def enter(self, new: NewSeats) -> None:
        """Take over seats that change hands."""
        self.num_known[new.seats] = new.num_tokens
        self.num_prompt[new.seats] = new.num_prompt_tokens
        self.lives[new.seats] += 1
        ends = np.cumsum(new.num_tokens)[:-1]
        for seat, tokens in zip(new.seats.tolist(), np.split(new.tokens, ends), strict=True):
            self._tokens[seat] = tokens

    def note_blocks(self, step: StepInput) -> None:
        """Enter the new blocks of a step into the tables on the host."""
        self._host_tables[step.table_seats, step.table_columns] = step.table_blocks

    def slots(self, seats: Ints, positions: Ints, block_size: int) -> Ints:
        """[n] int32: where in the pool the tokens at these positions [n] of these seats [n] lie, as
        `KVPool.slot_mapping` counts."""
        columns, offsets = np.divmod(positions, block_size)
        slots: Ints = self._host_tables[seats, columns] * block_size + offsets
        return slots

    def extend_tables(self, step: StepInput) -> None:
        """Enter the new blocks of a step into the tables on the device."""
        if len(step.table_seats):
            places = (step.table_seats, step.table_columns)
            (blocks,), index = to_device((step.table_blocks,), places, self._device)
            self.tables.index_put_(tuple(index), blocks)

    def known_tokens(self, seat: int, start: int, end: int) -> NDArray[np.int32]:
        """Tokens [start, end) of a seat, as far as control has sent them."""
        return self._tokens[seat][start:end]
