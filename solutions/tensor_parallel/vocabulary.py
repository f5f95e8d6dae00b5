"""Logits of which each rank holds some tokens' columns: all of them together, or just the winner."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share


class VocabLogits:
    """See `yaie.core.contracts.ranks.VocabLogits`."""

    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self._group = group
        self._shares = [share(vocab_size, rank, group.size) for rank in range(group.size)]

    # ANCHOR: gather
    def gather(self, logits: Tensor) -> Tensor:
        """logits: [rows, held]. Returns [rows, vocab_size], in the order of the vocabulary."""
        # BEGIN SOLUTION 20.6
        padded = logits.new_zeros(len(logits), len(self._shares[0]))
        padded[:, : logits.shape[1]] = logits
        gathered = self._group.all_gather(padded)
        parts = [gathered[rank, :, : len(held)] for rank, held in enumerate(self._shares)]
        return torch.cat(parts, dim=1)
        # END SOLUTION

    # ANCHOR_END: gather

    # ANCHOR: arg_max
    def arg_max(self, logits: Tensor) -> Tensor:
        """The token with the highest logit of each row, on any rank: [rows] int64."""
        # BEGIN SOLUTION 20.7
        # argmax takes NaN for the highest, and of equal numbers the first.
        local = logits.argmax(dim=1, keepdim=True)
        tokens = local + self._shares[self._group.rank].start
        bests = torch.cat([logits.gather(1, local).double(), tokens.double()], dim=1)
        highest, candidates = self._group.all_gather(bests).unbind(2)
        winner = highest.argmax(dim=0, keepdim=True)
        failed = ~highest.gather(0, winner)[0].isfinite()
        return candidates.gather(0, winner)[0].long().masked_fill(failed, -1)
        # END SOLUTION

    # ANCHOR_END: arg_max

    # ANCHOR: draw
    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        """One token for each row, drawn by the Gumbel trick of lab 1: [rows] int64."""
        # BEGIN SOLUTION 20.7
        return self.arg_max(logits + noise(self._shares[self._group.rank]))
        # END SOLUTION

    # ANCHOR_END: draw
