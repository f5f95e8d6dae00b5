"""Logit and token of each row travel side by side in float64; the winner is found by sorting on both."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share


class VocabLogits:
    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self._group = group
        self._held = [share(vocab_size, rank, group.size) for rank in range(group.size)]
        self._widest = max(map(len, self._held))

    def gather(self, logits: Tensor) -> Tensor:
        padded = torch.empty(len(logits), self._widest, dtype=logits.dtype, device=logits.device)
        padded[:, : logits.shape[1]], padded[:, logits.shape[1] :] = logits, 0
        everywhere = self._group.all_gather(padded).transpose(0, 1).flatten(1)
        columns = [
            rank * self._widest + place
            for rank, held in enumerate(self._held)
            for place in range(len(held))
        ]
        return everywhere[:, torch.tensor(columns, device=logits.device)]

    def arg_max(self, logits: Tensor) -> Tensor:
        own = self._held[self._group.rank]
        best, at = logits.max(dim=1)
        failed = logits.isnan().any(dim=1)
        first = (logits == best[:, None]).int().argmax(dim=1)
        token = torch.where(failed, at, first) + own.start
        best = best.double().masked_fill(failed, float("nan"))
        pairs = self._group.all_gather(torch.stack([best, token.double()]))
        bests, tokens = pairs[:, 0], pairs[:, 1]
        highest = bests.amax(dim=0)
        wins = tokens.masked_fill(bests != highest, float("inf")).amin(dim=0)
        return torch.where(highest.isfinite(), wins, torch.full_like(wins, -1)).long()

    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        own = noise(self._held[self._group.rank])
        return self.arg_max(own + logits.to(torch.promote_types(logits.dtype, own.dtype)))
