"""One call samples a token for every request of a batch, each with its own parameters.

Called by the worker after the forward pass (`yaie/worker/worker.py`).
"""

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .filters import apply_min_p, apply_penalties, apply_temperature, apply_top_k, apply_top_p
from .noise import gumbel_noise

INVALID = -1


class Sampler:
    """See `yaie.core.contracts.Sampler`.

    Gumbel trick: argmax(logits + Gumbel noise) is a draw from softmax(logits) (Gumbel 1954; Maddison,
    Tarlow and Minka 2014). It needs no sum, no cumulative sum and no transfer to the host.
    """

    # ANCHOR: sample
    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab] float32; returns [n] int64, -1 for a row that is not finite.

        Penalties come first, then temperature, top-k, top-p, min-p. What no row asks for is not
        computed: the flags of the batch say so. Logits may be overwritten, the batch's tensors not.
        """
        # BEGIN SOLUTION 1.7
        # NaN and +inf win amax, and a row of nothing but -inf has no other maximum.
        valid = logits.amax(dim=1).isfinite()
        if batch.penalties is not None:
            logits = apply_penalties(logits, batch.penalties)
        greedy = logits.argmax(dim=1)
        if batch.all_greedy:
            return torch.where(valid, greedy, INVALID)
        logits = apply_temperature(logits, batch.temperature)
        if batch.any_top_k:
            logits = apply_top_k(logits, batch.top_k)
        if batch.any_top_p:
            logits = apply_top_p(logits, batch.top_p)
        if batch.any_min_p:
            logits = apply_min_p(logits, batch.min_p)
        drawn = (logits + gumbel_noise(batch.seeds, batch.steps, logits.shape[1])).argmax(dim=1)
        token_ids = torch.where(batch.temperature == 0, greedy, drawn)
        return torch.where(valid, token_ids, INVALID)
        # END SOLUTION

    # ANCHOR_END: sample
