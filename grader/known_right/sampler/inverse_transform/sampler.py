"""Another right sampler: one uniform number for a row, and the token at which the running sum passes it.

No noise for every token, no race: the inverse of the cumulative distribution, in float64. The uniform
number comes from the given noise of two tokens, which holds enough bits for a large vocabulary.
"""

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .filters import apply_min_p, apply_penalties, apply_temperature, apply_top_k, apply_top_p
from .noise import gumbel_noise


class Sampler:
    """See `yaie.core.contracts.Sampler`."""

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Returns [n] int64, -1 for a row that is not finite."""
        broken = logits.isnan().any(1) | logits.isposinf().any(1) | logits.isneginf().all(1)
        scores = logits if batch.penalties is None else apply_penalties(logits, batch.penalties)
        tokens = scores.max(dim=1).indices
        if not batch.all_greedy:
            scores = apply_temperature(scores, batch.temperature)
            for is_due, rule, parameter in (
                (batch.any_top_k, apply_top_k, batch.top_k),
                (batch.any_top_p, apply_top_p, batch.top_p),
                (batch.any_min_p, apply_min_p, batch.min_p),
            ):
                scores = rule(scores, parameter) if is_due else scores
            tokens = torch.where(batch.temperature > 0, _drawn(scores, batch), tokens)
        tokens[broken] = -1
        return tokens


def _drawn(scores: Tensor, batch: SamplingBatch) -> Tensor:
    """Of each row the first token whose running sum is above the row's number."""
    sums = scores.double().softmax(dim=1).cumsum(dim=1)
    sums = sums / sums[:, -1:]
    number = _uniform(batch)[:, None] * (1 - 2.0**-40)
    # right=True: a token of probability 0 has the sum of the one before it, and is passed over.
    return torch.searchsorted(sums, number, right=True)[:, 0].clamp(max=scores.shape[1] - 1)


def _uniform(batch: SamplingBatch) -> Tensor:
    """[n] float64 in [0, 1): exp(-exp(-g)) of Gumbel noise g is uniform; a second one fills its bits."""
    noise = gumbel_noise(batch.seeds, batch.steps, 2).double()
    coarse, fine = (-(-noise).exp()).exp().unbind(dim=1)
    return (coarse + fine * 2.0**-20) % 1.0
