# Lab 1, your part: task 1.7. The rest is given.
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
        # TODO 1.7: your code here (the reference: 16 lines).
        raise NotImplementedError(
            "sampler task 1.7: not implemented yet; see chapter Sampling"
        )

    # ANCHOR_END: sample
