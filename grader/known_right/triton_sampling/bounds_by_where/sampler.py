"""Another design: a sampler that is called, and whose passes are a list of functions.

The reference writes its call down line by line.
"""

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .draw import draw_rows
from .penalties import apply_penalties
from .scan import Scan, scan_rows
from .top_k import top_k_bounds


class Sampler:
    """The sampler of lab 1; see `yaie.core.contracts.Sampler`."""

    __slots__ = ()

    def __call__(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        if logits.shape[0] == 0:
            return logits.new_zeros(0, dtype=torch.int64)
        if (penalties := batch.penalties) is not None:
            logits.copy_(apply_penalties(logits, penalties))
        scan = scan_rows(logits, batch)
        bounds = self._bounds(logits, batch, scan)
        drawn: Tensor = draw_rows(logits, batch, scan, bounds)
        return drawn

    sample = __call__

    @staticmethod
    def _bounds(logits: Tensor, batch: SamplingBatch, scan: Scan) -> Tensor:
        if batch.any_top_k:
            return top_k_bounds(logits, batch, scan)
        return torch.full((logits.shape[0],), -torch.inf, device=logits.device)
