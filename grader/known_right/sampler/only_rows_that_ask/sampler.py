"""Another right sampler: each filter gets only the rows that use it, and noise only those that sample.

Rows are picked with an index, filtered as a smaller batch, and put back. A batch in which one row of
a hundred asks for top-p sorts one row.
"""

from dataclasses import fields

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch, SamplingBatch

from .filters import apply_min_p, apply_penalties, apply_temperature, apply_top_k, apply_top_p
from .noise import gumbel_noise


class Sampler:
    """See `yaie.core.contracts.Sampler`."""

    rules = (
        ("any_top_k", "top_k", apply_top_k, lambda k: k > 0),
        ("any_top_p", "top_p", apply_top_p, lambda p: p < 1),
        ("any_min_p", "min_p", apply_min_p, lambda p: p > 0),
    )

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Returns [n] int64, -1 for a row that is not finite."""
        tokens = torch.full((len(logits),), -1, dtype=torch.int64, device=logits.device)
        (alive,) = logits.amax(dim=1).isfinite().nonzero(as_tuple=True)
        if not len(alive):
            return tokens
        logits = logits[alive]
        if batch.penalties is not None:
            logits = apply_penalties(logits, _picked(batch.penalties, alive))
        tokens[alive] = logits.argmax(dim=1)
        if batch.all_greedy:
            return tokens
        (warm,) = (batch.temperature[alive] != 0).nonzero(as_tuple=True)
        if len(warm):
            rows = alive[warm]
            tokens[rows] = self._draw(logits[warm], batch, rows)
        return tokens

    def _draw(self, logits: Tensor, batch: SamplingBatch, rows: Tensor) -> Tensor:
        """logits: of the batch's rows `rows`, none of them greedy."""
        logits = apply_temperature(logits, batch.temperature[rows])
        for flag, name, rule, is_on in self.rules:
            if getattr(batch, flag):
                parameter = getattr(batch, name)[rows]
                (using,) = is_on(parameter).nonzero(as_tuple=True)
                if len(using):
                    logits[using] = rule(logits[using], parameter[using])
        return (
            logits + gumbel_noise(batch.seeds[rows], batch.steps[rows], logits.shape[1])
        ).argmax(1)


def _picked(penalties: PenaltyBatch, rows: Tensor) -> PenaltyBatch:
    return PenaltyBatch(
        **{one.name: getattr(penalties, one.name)[rows] for one in fields(penalties)}
    )
