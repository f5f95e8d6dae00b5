"""A convolution over the last few tokens, whose state is the tail of its inputs."""

import torch
import torch.nn.functional as F
from torch import Tensor


# ANCHOR: short_conv
def short_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tails: Tensor,
    starts: Tensor,
    silu: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.ShortConv`.

    All sequences are in one row, each after its tail: the inputs before a token are the rows before
    it. With a width of 3 and sequences of 2 and 1 tokens:

        row      t t a b t t c        t: inputs of a tail
        tokens       0 1     2
    """
    # BEGIN SOLUTION 22.1
    kept, num_tokens = weight.shape[1] - 1, len(x)
    begins = starts.long()
    sequences = torch.arange(len(tails), device=x.device)
    tokens = torch.arange(num_tokens, device=x.device)
    owner = torch.searchsorted(begins[1:], tokens, right=True)
    at = tokens + (owner + 1) * kept  # where a token lies, after its tail and all before
    row = tails.new_zeros(num_tokens + (len(tails) + 1) * kept, x.shape[1])
    before = torch.arange(kept, device=x.device)
    row[(begins[:-1] + sequences * kept)[:, None] + before] = tails.transpose(1, 2)
    row[at] = x.to(row.dtype)
    factors = weight.to(row.dtype)
    total = row[at] * factors[:, -1]
    for back in range(1, kept + 1):
        total.addcmul_(row[at - back], factors[:, -1 - back])
    if bias is not None:
        total += bias
    out = (F.silu(total) if silu else total).to(x.dtype)
    ends = begins[1:] + (sequences + 1) * kept
    after = row[ends[:, None] - kept + before].transpose(1, 2)
    return out.masked_fill_((tokens >= begins[-1])[:, None], 0.0), after
    # END SOLUTION


# ANCHOR_END: short_conv
