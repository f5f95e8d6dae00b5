"""Lab 1: the contract of the sampler."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.batch import SamplingBatch


# ANCHOR: sampler
class Sampler(Protocol):
    """Lab 1. Samples one token for each row of a batch, in one call without a loop over rows, on the
    logits' device."""

    def sample(self, logits: "Tensor", batch: "SamplingBatch") -> "Tensor":
        """Sample from `logits` [n, vocab] (float32, may be overwritten); returns [n] int64.

        A row that holds NaN or +inf, or nothing but -inf, gives -1 and disturbs no other row.
        A row's token depends on its logits, its parameters, its seed and its step, on nothing else.
        """
        ...


# ANCHOR_END: sampler
