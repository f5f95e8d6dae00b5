"""Shares are asked for when they are needed; gathered columns are picked by one index, and the winner of
a row is found in a loop over the ranks that keeps the best one so far."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share


class VocabLogits:
    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self.vocab_size = vocab_size
        self.group = group

    @cached_property
    def widest(self) -> int:
        return -(-self.vocab_size // self.group.size)

    @cached_property
    def columns(self) -> list[int]:
        """Where each token is among the gathered columns, rank after rank, with their padding."""
        found = []
        for rank in range(self.group.size):
            held = share(self.vocab_size, rank, self.group.size)
            found += [rank * self.widest + at for at in range(len(held))]
        return found

    def gather(self, logits: Tensor) -> Tensor:
        padding = logits.new_full((len(logits), self.widest - logits.shape[1]), float("nan"))
        gathered = self.group.all_gather(torch.cat((logits, padding), 1))
        in_rows = gathered.movedim(0, 1).reshape(len(logits), self.group.size * self.widest)
        return in_rows[:, self.columns]

    def arg_max(self, logits: Tensor) -> Tensor:
        best, at = logits.double().max(dim=1)
        first = share(self.vocab_size, self.group.rank, self.group.size).start
        own = torch.stack((best, (at + first).double()))
        winners, tokens = torch.full_like(best, -torch.inf), torch.full_like(best, -1)
        for highest, token in self.group.all_gather(own):
            is_better = highest > winners
            winners = torch.where(is_better, highest, winners)
            tokens = torch.where(is_better, token, tokens)
        any_nan = self._any_nan(own)
        lost = any_nan | ~winners.isfinite()
        return torch.where(lost, -1, tokens).long()

    def _any_nan(self, own: Tensor) -> Tensor:
        """Whether a row's best is NaN on some rank."""
        return self.group.all_reduce(own[0].isnan().double()) > 0

    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        held = share(self.vocab_size, self.group.rank, self.group.size)
        return self.arg_max(logits.double() + noise(held).double())
