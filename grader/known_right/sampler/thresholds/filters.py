"""Other right filters: each is an object that finds a bar for every row; what is below the bar goes.

No row is sorted: the bar of top-k and of top-p is found by bisection on the bits of a float, of which 32
halvings leave one. Ties at the bar all stay.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """The factor of each token as a matrix: 1 where nothing was seen."""
    counts, neutral = penalties.output_counts, torch.ones_like(logits)
    seen = torch.logical_or(penalties.prompt_mask, counts > 0)
    factor = torch.where(seen, penalties.repetition[:, None], neutral)
    changed = torch.where(logits.signbit(), logits * factor, logits / factor)
    each = counts * penalties.frequency[:, None]
    once = counts.bool() * penalties.presence[:, None]
    return changed - (each + once)


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Greedy rows divide by 1, the others by what they ask for, in float64."""
    wide = logits.double()
    wide = wide - wide.amax(dim=1, keepdim=True)
    return (wide / (temperature.double() + (temperature == 0))[:, None]).to(logits.dtype)


def _ordered(values: Tensor) -> Tensor:
    """Integers [..] that are ordered as these floats are; -0.0 counts as 0.0."""
    bits = (values + 0.0).contiguous().view(torch.int32).long()
    return torch.where(bits < 0, _LOWEST - bits, bits)


def _highest_bar(keys: Tensor, is_enough: Callable[[Tensor], Tensor]) -> Tensor:
    """For each row the largest integer bar such that what is at or above it is enough."""
    low = torch.full_like(keys[:, :1], _LOWEST)
    high = torch.full_like(low, _HIGHEST)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        enough = is_enough(keys >= middle)[:, None]
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle - 1)
    return low


class _Filter(ABC):
    """Called as a function is."""

    def __call__(self, logits: Tensor, parameter: Tensor) -> Tensor:
        return torch.where(self.stays(logits, parameter), logits, float("-inf"))

    @abstractmethod
    def stays(self, logits: Tensor, parameter: Tensor) -> Tensor:
        """[n, vocab] bool."""


class _TopK(_Filter):
    def stays(self, logits: Tensor, parameter: Tensor) -> Tensor:
        keys, k = _ordered(logits), parameter.clamp(max=logits.shape[1])
        bar = _highest_bar(keys, lambda above: above.sum(dim=1) >= k)
        return (keys >= bar) | (k <= 0)[:, None]


class _TopP(_Filter):
    def stays(self, logits: Tensor, parameter: Tensor) -> Tensor:
        keys, probs = _ordered(logits), logits.double().softmax(dim=1)
        p = parameter.double().clamp(max=1 - 1e-12)
        bar = _highest_bar(keys, lambda above: (probs * above).sum(dim=1) >= p)
        best = keys == keys.amax(dim=1, keepdim=True)
        return (keys >= bar) | best | (parameter == 1)[:, None]


class _MinP(_Filter):
    def stays(self, logits: Tensor, parameter: Tensor) -> Tensor:
        ratio = (logits - logits.amax(dim=1, keepdim=True)).exp()
        return ratio >= parameter[:, None]


apply_top_k = _TopK()
apply_top_p = _TopP()
apply_min_p = _MinP()
