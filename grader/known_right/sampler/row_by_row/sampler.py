"""Another right sampler: a batch goes through in pieces of at most 512 rows, so that memory stays small.

Each piece is a batch of its own, with the same flags; a decorator keeps gradients out.
"""

from dataclasses import fields, replace

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch, SamplingBatch

from . import filters, noise

AT_ONCE = 512


class Sampler:
    """See `yaie.core.contracts.Sampler`."""

    __slots__ = ()

    @torch.no_grad()
    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Returns [n] int64, -1 for a row that is not finite."""
        starts = range(0, logits.shape[0], AT_ONCE)
        pieces = [slice(start, start + AT_ONCE) for start in starts]
        return torch.cat([_piece(logits[here], _narrowed(batch, here)) for here in pieces])


def _piece(logits: Tensor, batch: SamplingBatch) -> Tensor:
    valid = logits.max(dim=1).values.isfinite()
    if batch.penalties is not None:
        logits = filters.apply_penalties(logits, batch.penalties)
    tokens = logits.argmax(dim=1)
    if not batch.all_greedy:
        warm = filters.apply_temperature(logits, batch.temperature)
        if batch.any_top_k:
            warm = filters.apply_top_k(warm, batch.top_k)
        if batch.any_top_p:
            warm = filters.apply_top_p(warm, batch.top_p)
        if batch.any_min_p:
            warm = filters.apply_min_p(warm, batch.min_p)
        warm = warm + noise.gumbel_noise(batch.seeds, batch.steps, logits.shape[1])
        tokens = torch.where(batch.temperature == 0, tokens, warm.argmax(dim=1))
    return torch.where(valid, tokens, -1)


def _narrowed(batch: SamplingBatch, here: slice) -> SamplingBatch:
    """The rows `here` of every tensor."""
    penalties = batch.penalties and PenaltyBatch(
        **{one.name: getattr(batch.penalties, one.name)[here] for one in fields(batch.penalties)}
    )
    names = ("temperature", "top_k", "top_p", "min_p", "seeds", "steps")
    return replace(
        batch, penalties=penalties, **{name: getattr(batch, name)[here] for name in names}
    )
