"""Logits are gathered column by column, and the best token by two gathers, of logits and of tokens."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share


class VocabLogits:
    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self._vocab_size = vocab_size
        self._group = group

    def _held(self, rank: int) -> range:
        return share(self._vocab_size, rank, self._group.size)

    def gather(self, logits: Tensor) -> Tensor:
        columns = torch.nn.functional.pad(
            logits.t(), (0, 0, 0, len(self._held(0)) - logits.shape[1])
        )
        gathered = self._group.all_gather(columns)
        whole = torch.empty(len(logits), self._vocab_size, dtype=logits.dtype, device=logits.device)
        for rank in range(self._group.size):
            held = self._held(rank)
            whole[:, held.start : held.stop] = gathered[rank, : len(held)].t()
        return whole

    def arg_max(self, logits: Tensor) -> Tensor:
        best = logits.amax(dim=1)  # NaN if there is one
        at = (logits == best[:, None]).int().argmax(dim=1)
        tokens = self._group.all_gather(at + self._held(self._group.rank).start)
        bests = self._group.all_gather(best)
        highest = bests.amax(dim=0)
        wins = torch.where(bests == highest, tokens, self._vocab_size).amin(dim=0)
        return torch.where(highest.isfinite(), wins, -1)

    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        held = self._held(self._group.rank)
        return self.arg_max(noise(held).add(logits))
