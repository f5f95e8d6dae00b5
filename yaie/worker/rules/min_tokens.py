"""`min_tokens`: what would end an output is not drawn before that has so many tokens."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.step import Arrays, Ints, NewSeats
from yaie.worker.rows import Rows, joined
from yaie.worker.rules.base import LogitsRule

NEG_INF = float("-inf")


class MinTokens(LogitsRule):
    """told: `least` [b] int64, below which a seat draws none of its `tokens` [b] int64, beside `rows`.

    How many a seat has drawn only the device knows: where drafts were accepted, more than one a step.
    The host knows how many steps it has drawn in at least, and looks no further when they suffice.
    """

    name: ClassVar[str] = "min_tokens"

    def __init__(self, num_seats: int, vocab_size: int, device: torch.device) -> None:
        super().__init__(num_seats, vocab_size, device)
        self._tokens: dict[int, NDArray[np.int64]] = {}
        self._least = np.zeros(num_seats, np.int64)
        self._drawn = np.zeros(num_seats, np.int64)

    def forget(self, seat: int) -> None:
        self._tokens.pop(seat, None)

    def remember(self, seats: Ints, told: Arrays, new: NewSeats) -> None:
        self._drawn[new.seats] = new.steps
        self._least[seats] = told["least"]
        for seat in np.unique(seats).tolist():
            self._tokens[seat] = told["tokens"][seats == seat]

    def apply(self, logits: Tensor, rows: Rows) -> None:
        seats = np.unique(rows.seats)
        for seat in seats[self.asks[seats] & (self._drawn[seats] >= self._least[seats])].tolist():
            self.forget(seat)
            self.asks[seat] = False
        if not self.asks[seats].any():
            rows.rules.remove(self)
            return
        self._drawn[seats] += 1
        if self.name not in rows.kept:
            found = [
                (row, own, np.full(len(own), self._least[seat]))
                for row, seat in enumerate(rows.seats)
                if (own := self._tokens.get(seat)) is not None
            ]
            rows.kept[self.name] = joined(found, self.device)
        index, tokens, least = rows.kept[self.name]
        too_early = rows.batch.steps[index] < least
        # Added, not filled in: a row with NaN must stay one.
        forbidden = torch.zeros(len(index), device=self.device).masked_fill_(too_early, NEG_INF)
        logits.index_put_((index, tokens), forbidden, accumulate=True)
