"""`LogitsRule`: what stands between the model's logits and the sampler."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.step import Arrays, Ints, NewSeats
from yaie.worker.rows import Rows


class LogitsRule(ABC):
    """Changes the logits of rows whose requests ask for it, or how the sampler draws from them. One is
    made when the first request does, and dropped when none of them has a seat any more.

    name: its key in `NewSeats.extras`. asks: [num_seats] bool, the seats that it is for.
    """

    name: ClassVar[str]

    def __init__(self, num_seats: int, vocab_size: int, device: torch.device) -> None:
        self.asks: NDArray[np.bool_] = np.zeros(num_seats, np.bool_)
        self.vocab_size = vocab_size
        self.device = device

    def enter(self, new: NewSeats) -> None:
        """Seats change hands: forget who asked, and take over what the new ones ask for."""
        for seat in new.seats[self.asks[new.seats]].tolist():
            self.forget(seat)
        self.asks[new.seats] = False
        if self.name in new.extras:
            told = new.extras[self.name]
            seats = new.seats[told["rows"]]
            self.asks[seats] = True
            self.remember(seats, told, new)

    @abstractmethod
    def forget(self, seat: int) -> None:
        """Drop what is kept of a seat that asked."""

    @abstractmethod
    def remember(self, seats: Ints, told: Arrays, new: NewSeats) -> None:
        """Keep what is `told` of these seats, one for each of its rows."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: Rows) -> None:
        """Change `logits` [n, vocab] float32 in place, or `rows.batch`. Some of the rows ask."""

    def drew(self, rows: Rows, token_ids: Tensor, chosen: Tensor | None) -> None:  # noqa: B027
        """Each row, or each of the `chosen` [m] int64, has drawn its token of `token_ids` [n] int64."""
