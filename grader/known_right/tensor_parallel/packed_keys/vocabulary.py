"""Logit and token of a row travel as one int64 that is as large as they are good, if the logits have at
most 32 bits; the best of the ranks is then a maximum. Logits of 64 bits go beside their tokens."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share

SIGN = 2**31 - 1
FAILED = torch.iinfo(torch.int64).max


class VocabLogits:
    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self._size = vocab_size
        self._group = group
        self._own = share(vocab_size, group.rank, group.size)

    def gather(self, logits: Tensor) -> Tensor:
        """Each rank fills in its columns of zeros, and all columns travel: no rank is padded at its end
        but in front."""
        width = len(share(self._size, 0, self._group.size))
        padded = logits.new_zeros(len(logits), width)
        padded[:, width - len(self._own) :] = logits
        everyone = self._group.all_gather(padded)
        whole = logits.new_empty(len(logits), self._size)
        for rank in range(self._group.size):
            held = share(self._size, rank, self._group.size)
            whole[:, held.start : held.stop] = everyone[rank][:, width - len(held) :]
        return whole

    def arg_max(self, logits: Tensor) -> Tensor:
        if logits.dtype == torch.float64:
            return self._beside_each_other(logits)
        best = logits.float().amax(dim=1)
        at = (logits.float() == best[:, None]).int().argmax(dim=1)
        bits = best.view(torch.int32).long()
        ordered = torch.where(bits < 0, bits ^ SIGN, bits)
        ordered = torch.where(best == 0, 0, ordered)  # -0.0 is 0.0
        keys = ordered * 2**32 + (2**32 - 1 - (at + self._own.start))
        keys = torch.where(best.isnan() | (best == torch.inf), FAILED, keys)
        top = self._group.all_gather(keys).amax(dim=0)
        lowest = torch.tensor(-torch.inf).view(torch.int32).long().item() ^ SIGN
        has_none = (top == FAILED) | (top >> 32 == lowest)
        return torch.where(has_none, -1, 2**32 - 1 - (top & (2**32 - 1)))

    def _beside_each_other(self, logits: Tensor) -> Tensor:
        best, at = logits.max(dim=1)
        bests = self._group.all_gather(best)
        tokens = self._group.all_gather(at + self._own.start)
        top = bests.amax(dim=0)
        candidates = torch.where(bests == top, tokens, self._size)
        return torch.where(top.isfinite(), candidates.amin(dim=0), -1)

    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        return self.arg_max(logits.double() + noise(self._own))
