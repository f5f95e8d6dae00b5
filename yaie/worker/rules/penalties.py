"""Penalties: which tokens the prompts of seats hold and how often their outputs hold each, kept on the
device. The sampler applies them (`SamplingBatch.penalties`)."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import PenaltyBatch
from yaie.core.step import Arrays, Ints, NewSeats
from yaie.worker.rows import Rows
from yaie.worker.rules.base import LogitsRule
from yaie.worker.transfer import on_device

FIRST_ROWS = 8
_NAMES = ("presence", "frequency", "repetition")


class Penalties(LogitsRule):
    """told: `presence`, `frequency`, `repetition` [b] float32, beside `rows`.

    Counts are rows of the seats that ask; row 0, all zero, serves all others. They grow by doubling: a
    vocabulary's worth of memory is taken only for seats that need it.
    """

    name: ClassVar[str] = "penalties"

    def __init__(self, num_seats: int, vocab_size: int, device: torch.device) -> None:
        super().__init__(num_seats, vocab_size, device)
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._output = torch.zeros(1, vocab_size, dtype=torch.float32, device=device)
        self._prompt = torch.zeros(1, vocab_size, dtype=torch.bool, device=device)
        self._values = torch.zeros(len(_NAMES), num_seats, device=device)
        self._values[2] = 1

    def forget(self, seat: int) -> None:
        self._free.append(self._rows.pop(seat))
        self._values[:2, seat], self._values[2, seat] = 0, 1

    def remember(self, seats: Ints, told: Arrays, new: NewSeats) -> None:
        index = on_device(seats.astype(np.int64), self.device)
        values = np.stack([told[name] for name in _NAMES])
        self._values.index_copy_(1, index, on_device(values, self.device))
        tokens = np.split(new.tokens, np.cumsum(new.num_tokens)[:-1])
        for seat, position in zip(seats.tolist(), told["rows"].tolist(), strict=True):
            own, num_prompt = tokens[position], new.num_prompt_tokens[position]
            self._add(seat, own[:num_prompt], own[num_prompt:])

    def _add(self, seat: int, prompt: NDArray[np.int32], output: NDArray[np.int32]) -> None:
        """Count the tokens of a seat."""
        if not self._free:
            self._grow()
        row = self._rows[seat] = self._free.pop()
        self._prompt[row] = False
        self._prompt[row, on_device(prompt, self.device).long()] = True
        self._output[row] = 0.0
        self._count(
            torch.full((len(output),), row, device=self.device),
            on_device(output, self.device).long(),
        )

    def apply(self, logits: Tensor, rows: Rows) -> None:
        """Hand the sampler copies of the counts, in which the drafts before a row count, too."""
        if self.name not in rows.kept:
            counted = np.array([self._rows.get(seat, 0) for seat in rows.seats])
            rows.kept[self.name] = on_device(counted, self.device)
        counted = rows.kept[self.name]
        presence, frequency, repetition = self._values.index_select(1, rows.index)
        output = self._output[counted]
        if rows.drafts is not None:
            rows.drafts.count_into(output)
        rows.batch.penalties = PenaltyBatch(
            presence, frequency, repetition, output, self._prompt[counted]
        )

    def drew(self, rows: Rows, token_ids: Tensor, chosen: Tensor | None) -> None:
        counted = rows.kept[self.name]
        if chosen is not None:
            counted, token_ids = counted[chosen], token_ids[chosen]
        self._count(counted, token_ids)

    def _count(self, rows: Tensor, token_ids: Tensor) -> None:
        """One more of each token. A token of -1, of a draw that failed, counts for nothing that matters:
        its seat draws no further."""
        more = (rows > 0).to(torch.float32)  # row 0 stays empty
        self._output.index_put_((rows, token_ids.clamp(min=0)), more, accumulate=True)

    def _grow(self) -> None:
        old = len(self._output)
        more = max(FIRST_ROWS, old)
        self._output = torch.cat([self._output, self._output.new_zeros(more, self.vocab_size)])
        self._prompt = torch.cat([self._prompt, self._prompt.new_zeros(more, self.vocab_size)])
        self._free += range(old, old + more)
