"""`TiledSampler`: another sampler that is always given as many rows.

A part divides the vocabulary among programs by the number of rows, and top-p's sums with it.
"""

from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import SamplingBatch
from yaie.core.contracts import Sampler

ROWS = 16


class TiledSampler:
    """See `yaie.core.contracts.Sampler`: ROWS rows a call, the last call padded with its last row."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab]; returns [n] int64."""
        count = len(logits)
        drawn = [
            self._tile(logits[first : first + ROWS], batch, first)
            for first in range(0, count, ROWS)
        ]
        if not drawn:
            return torch.empty(0, dtype=torch.int64, device=logits.device)
        return torch.cat(drawn)[:count]

    def _tile(self, logits: Tensor, batch: SamplingBatch, first: int) -> Tensor:
        missing = ROWS - len(logits)
        last = first + len(logits) - 1
        rows = torch.arange(first, first + ROWS, device=logits.device).clamp(max=last)
        if missing:
            logits = F.pad(logits, (0, 0, 0, missing))
        own: SamplingBatch = _rows_of(batch, rows)
        if batch.penalties is not None:
            own.penalties = _rows_of(batch.penalties, rows)
        return self._sampler.sample(logits, own)


def _rows_of(part: Any, rows: Tensor) -> Any:
    """The same dataclass with these rows of each tensor."""
    tensors = {
        item.name: value.index_select(0, rows)
        for item in fields(part)
        if isinstance(value := getattr(part, item.name), Tensor)
    }
    return replace(part, **tensors)
