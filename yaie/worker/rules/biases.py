"""`logit_bias`: numbers that are added to the logits of some tokens."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.step import Arrays, Ints, NewSeats
from yaie.worker.rows import Rows, joined
from yaie.worker.rules.base import LogitsRule


class Biases(LogitsRule):
    """told: `tokens` [b] int64 and `values` [b] float32, beside `rows`."""

    name: ClassVar[str] = "biases"

    def __init__(self, num_seats: int, vocab_size: int, device: torch.device) -> None:
        super().__init__(num_seats, vocab_size, device)
        self._of: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}

    def forget(self, seat: int) -> None:
        del self._of[seat]

    def remember(self, seats: Ints, told: Arrays, new: NewSeats) -> None:
        for seat in np.unique(seats).tolist():
            mine = seats == seat
            self._of[seat] = told["tokens"][mine], told["values"][mine]

    def apply(self, logits: Tensor, rows: Rows) -> None:
        if self.name not in rows.kept:
            found = [
                (row, *self._of[seat]) for row, seat in enumerate(rows.seats) if seat in self._of
            ]
            rows.kept[self.name] = joined(found, self.device)
        index, tokens, values = rows.kept[self.name]
        logits.index_put_((index, tokens), values, accumulate=True)
