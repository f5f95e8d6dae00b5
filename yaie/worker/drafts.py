"""Several rows for a seat that has drafts, and which of its draws count.

A seat with k drafts draws k + 1 tokens, each as if the drafts before it were right. The first draw
counts, and each further one while the draft before it equals the draw before it (lab 18's `accepted`).
A draw depends on logits, parameters, seed and step alone, so what counts is what would have been drawn
one by one.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.drafting import Accepted
from yaie.core.step import Ints, StepInput, no_ints
from yaie.worker.input_batch import InputBatch
from yaie.worker.rows import Rows
from yaie.worker.transfer import on_device


class DraftRows:
    """The rows of a step whose sampling seats have drafts.

    seats: [n] int32, with those repeated that have drafts. places: [n] int32, the row of the flat batch
    that each is drawn from. plain: rows of seats without drafts, on the device. offsets: [n] int64 on
    the device, how many drafts of its seat stand before each.
    """

    def __init__(
        self, step: StepInput, ends: Ints, lives: NDArray[np.int64], device: torch.device
    ) -> None:
        """ends: behind each seat's last token in the flat batch. lives: see `InputBatch`."""
        counts = step.num_drafts[step.samples]
        self._device = device
        self._counts = counts.tolist()
        self._drafts = np.split(step.drafts, np.cumsum(step.num_drafts)[:-1])
        self._drafts = [self._drafts[row] for row in np.flatnonzero(step.samples)]
        self.seats = np.repeat(step.seats[step.samples], counts + 1)
        offsets = np.concatenate([np.arange(count + 1) for count in counts])
        self.offsets = on_device(offsets, device)
        self._lives = lives[self.seats]
        last = np.repeat(ends[step.samples] - 1 - counts, counts + 1)
        self.places = (last + offsets).astype(np.int32)
        alone = np.repeat(counts == 0, counts + 1)
        self.plain = on_device(np.flatnonzero(alone), device)

    def count_into(self, counts: Tensor) -> None:
        """Add the drafts before each row to its output counts [n, vocab] float32, in place."""
        rows, tokens = (on_device(part, self._device) for part in self._counted())
        one = torch.ones(1, dtype=counts.dtype, device=self._device)
        counts.index_put_((rows, tokens), one.expand(len(rows)), accumulate=True)

    def _counted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, token) of each draft and each row behind it, whose draw it counts for.

        drafts   a b c         of a seat whose first row is 7
        rows     7  8  9  10
        counted     a  ab abc
        """
        drafts = np.concatenate([no_ints(), *self._drafts]).astype(np.int64)
        counts = np.array(self._counts, dtype=np.int64)
        first = np.repeat(np.cumsum(counts + 1) - counts - 1, counts)  # the first row of its seat
        place = np.arange(len(drafts)) - np.repeat(np.cumsum(counts) - counts, counts)
        behind = np.repeat(counts, counts) - place  # as many rows
        offsets = np.arange(behind.sum()) - np.repeat(np.cumsum(behind) - behind, behind)
        return np.repeat(first + place + 1, behind) + offsets, np.repeat(drafts, behind)

    def accepted(self, draws: list[int], accepted: Accepted) -> list[list[int]]:
        """What each sampling seat gains of its draws. accepted: lab 18's."""
        gained, row = [], 0
        for count, drafts in zip(self._counts, self._drafts, strict=True):
            gained.append(accepted(drafts.tolist(), draws[row : row + count + 1]))
            row += count + 1
        return gained

    def settle(
        self, batch: InputBatch, rows: Rows, draws: list[int], gained: list[list[int]]
    ) -> None:
        """Move on the seats that had drafts, by what each has gained."""
        # Of a seat that a later step has given away, nothing is settled.
        own = [one for one in self.of_drafts(gained) if batch.lives[one[1]] == self._lives[one[0]]]
        batch.settle(*on_device(gains(own), self._device))
        for rule in rows.rules:
            rule.drew(rows, as_tensor(draws, self._device), as_tensor(rows_of(own), self._device))

    def of_drafts(self, gained: list[list[int]]) -> list[tuple[int, int, list[int]]]:
        """(first row, seat, tokens gained) of each seat that has drafts."""
        found, row = [], 0
        for count, own in zip(self._counts, gained, strict=True):
            if count:
                found.append((row, int(self.seats[row]), own))
            row += count + 1
        return found


def gains(gained: list[tuple[int, int, list[int]]]) -> NDArray[np.int64]:
    """[3, n]: seats that gained any tokens, the last of those, and how many."""
    found = [(seat, own[-1], len(own)) for _, seat, own in gained if own]
    return np.array(found, dtype=np.int64).reshape(-1, 3).T.copy()


def rows_of(gained: list[tuple[int, int, list[int]]]) -> list[int]:
    """The rows whose draws count."""
    return [row + offset for row, _, own in gained for offset in range(len(own))]


def as_tensor(values: list[int], device: torch.device) -> Tensor:
    """[n] int64."""
    return on_device(np.array(values, dtype=np.int64), device)
