"""Which tokens the prompts of seats hold and how often their outputs hold each, kept on the device."""

import numpy as np
import torch
from torch import Tensor

from yaie.worker.transfer import on_device

FIRST_ROWS = 8


class TokenCounts:
    """Rows of counts for the seats that ask for penalties; row 0, all zero, serves all others.

    Grows by doubling: a vocabulary's worth of memory is taken only for seats that need it.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._output = torch.zeros(1, vocab_size, dtype=torch.float32, device=device)
        self._prompt = torch.zeros(1, vocab_size, dtype=torch.bool, device=device)

    def drop(self, seat: int) -> None:
        """A seat changes hands."""
        if (row := self._rows.pop(seat, None)) is not None:
            self._free.append(row)

    def add(self, seat: int, prompt: np.ndarray, output: np.ndarray) -> None:
        """Count the tokens [.] int32 of a seat that asks for penalties."""
        if not self._free:
            self._grow()
        row = self._rows[seat] = self._free.pop()
        self._prompt[row] = False
        self._prompt[row, on_device(prompt, self._device).long()] = True
        self._output[row] = 0.0
        self.count(
            torch.full((len(output),), row, device=self._device),
            on_device(output, self._device).long(),
        )

    def rows(self, seats: list[int]) -> Tensor:
        """The rows [n] int64 of these seats."""
        return on_device(np.array([self._rows.get(seat, 0) for seat in seats]), self._device)

    def count(self, rows: Tensor, token_ids: Tensor) -> None:
        """One more of each token. A token of -1, of a draw that failed, counts for nothing that matters:
        its seat draws no further."""
        more = (rows > 0).to(torch.float32)  # row 0 stays empty
        self._output.index_put_((rows, token_ids.clamp(min=0)), more, accumulate=True)

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(output_counts [n, vocab] float32, prompt_mask [n, vocab] bool), copies."""
        return self._output[rows], self._prompt[rows]

    def _grow(self) -> None:
        old = len(self._output)
        more = max(FIRST_ROWS, old)
        self._output = torch.cat([self._output, self._output.new_zeros(more, self._vocab_size)])
        self._prompt = torch.cat([self._prompt, self._prompt.new_zeros(more, self._vocab_size)])
        self._free += range(old, old + more)
