"""Another right sampler: every row is sorted once, and tokens race.

It calls none of the three filters: on probabilities in descending order each of them is a condition on
rank, on the sum so far, or on the ratio to the first. And it adds nothing to logits: if token i arrives
after a time E_i / p_i, with exponential E_i, the first to arrive is token i with probability p_i.
"""

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .filters import apply_penalties, apply_temperature
from .noise import gumbel_noise

INVALID = -1


class Sampler:
    """See `yaie.core.contracts.Sampler`."""

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab] float32; returns [n] int64, -1 for a row that is not finite."""
        broken = ~logits.max(dim=-1).values.isfinite()
        if batch.penalties is not None:
            logits = apply_penalties(logits, batch.penalties)
        tokens = logits.argmax(dim=-1)
        if not batch.all_greedy:
            drawn = self._race(apply_temperature(logits, batch.temperature), batch)
            tokens = torch.where(batch.temperature > 0, drawn, tokens)
        return tokens.masked_fill(broken, INVALID)

    def _race(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """The first to arrive of each row's tokens that no filter keeps from starting."""
        exponential = gumbel_noise(batch.seeds, batch.steps, logits.shape[-1]).neg().exp()
        if not (batch.any_top_k or batch.any_top_p or batch.any_min_p):
            return (logits.softmax(dim=-1) / exponential).argmax(dim=-1)
        ordered, tokens = logits.sort(dim=-1, descending=True)
        speed = self._filtered(ordered, batch) / exponential.gather(1, tokens)
        return tokens.gather(1, speed.argmax(dim=-1, keepdim=True))[:, 0]

    def _filtered(self, ordered: Tensor, batch: SamplingBatch) -> Tensor:
        """Weights [n, vocab] in descending order, 0 for what is ruled out; they need not add up to 1."""
        vocab = ordered.shape[-1]
        k = batch.top_k.clamp(max=vocab)
        last = torch.where(k > 0, k, vocab) - 1
        weights = ordered.softmax(dim=-1)
        # Ties with the k-th logit stay: what counts is its value, not its rank.
        weights = weights * (ordered >= ordered.gather(1, last[:, None]))
        share = weights / weights.sum(dim=-1, keepdim=True)
        before = torch.cat((torch.zeros_like(share[:, :1]), share.cumsum(dim=-1)[:, :-1]), dim=-1)
        reached = (before >= batch.top_p[:, None]) & (batch.top_p[:, None] < 1)
        reached[:, 0] = False
        rare = weights < batch.min_p[:, None] * weights[:, :1]
        return weights.masked_fill(reached | rare, 0.0)
