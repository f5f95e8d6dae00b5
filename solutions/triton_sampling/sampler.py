"""One call draws a token for every request of a batch. See `yaie.core.contracts.Sampler`."""

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .draw import draw_rows
from .penalties import apply_penalties
from .scan import scan_rows
from .top_k import top_k_bounds


class Sampler:
    """The sampler of lab 1 in two or three launches; a seed draws the same tokens as there.

    Tokens that tie where top-p ends are all kept; lab 1 keeps those that a stable sort puts first.
    """

    # ANCHOR: sample
    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab] float32; returns [n] int64, -1 for a row that is not finite.

        Penalties come first, then temperature, top-k, top-p, min-p. Logits may be overwritten, the
        batch's tensors not. Rows may be strided; a row's logits lie next to one another. Nothing here
        waits for the device: the call fits in a CUDA graph.
        """
        # BEGIN SOLUTION 12.5
        if not len(logits):
            return torch.empty(0, dtype=torch.int64, device=logits.device)
        if batch.penalties is not None:
            logits = apply_penalties(logits, batch.penalties)
        scan = scan_rows(logits, batch)
        if batch.any_top_k:
            bounds = top_k_bounds(logits, batch, scan)
        else:
            bounds = logits.new_full((len(logits),), float("-inf"))
        return draw_rows(logits, batch, scan, bounds)
        # END SOLUTION

    # ANCHOR_END: sample
