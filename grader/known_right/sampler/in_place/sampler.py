"""Another right sampler: a table of steps instead of a chain of conditions, all in the logits' memory.

Which steps are due is read off the batch before the first of them runs, and the noise is added in place.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from . import filters
from .noise import gumbel_noise

Step = tuple[str, Tensor]


class Sampler:
    """See `yaie.core.contracts.Sampler`."""

    @staticmethod
    def sample(logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Returns [n] int64, -1 for a row that is not finite; `logits` holds the scores afterwards."""
        with torch.inference_mode():
            valid = logits.max(dim=-1).values.isfinite()
            if batch.penalties is not None:
                logits = filters.apply_penalties(logits, batch.penalties)
            best = logits.argmax(dim=-1)
            if not batch.all_greedy:
                for name, parameter in _due(batch):
                    apply: Callable[[Tensor, Tensor], Tensor] = getattr(filters, name)
                    logits = apply(logits, parameter)
                logits += gumbel_noise(batch.seeds, batch.steps, logits.size(-1))
                best = torch.where(batch.temperature.eq(0), best, logits.argmax(dim=-1))
            return best.where(valid, torch.full_like(best, -1))


def _due(batch: SamplingBatch) -> Iterator[Step]:
    """Names of filters with their parameters, in order."""
    yield "apply_temperature", batch.temperature
    if batch.any_top_k:
        yield "apply_top_k", batch.top_k
    if batch.any_top_p:
        yield "apply_top_p", batch.top_p
    if batch.any_min_p:
        yield "apply_min_p", batch.min_p
