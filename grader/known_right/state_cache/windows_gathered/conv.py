"""Each token's window is gathered out of what is there: the tails, one after the other, then x."""

import torch
import torch.nn.functional as F
from torch import Tensor


def short_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tails: Tensor,
    starts: Tensor,
    silu: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.ShortConv`."""
    n, channels, kept = tails.shape
    begins = starts.to(torch.int64)
    everything = torch.cat([tails.transpose(1, 2).reshape(n * kept, channels), x.to(tails.dtype)])
    steps = torch.arange(-kept, 1, device=x.device)

    def places(owner: Tensor, tokens: Tensor) -> Tensor:
        """Where the inputs from `kept` before each token to itself lie in `everything`."""
        at = tokens[:, None] + steps
        behind = at - begins[owner][:, None]
        return torch.where(behind < 0, (owner[:, None] + 1) * kept + behind, n * kept + at)

    tokens = torch.arange(len(x), device=x.device)
    real = tokens < begins[n]
    owner = (tokens[:, None] >= begins[None, 1:]).sum(1).clamp(max=n - 1)
    windows = everything[places(owner, tokens)]  # [T, width, channels]
    total = torch.einsum("twc,cw->tc", windows, weight.to(tails.dtype))
    if bias is not None:
        total = total + bias.to(total.dtype)
    if silu:
        total = F.silu(total)
    out = torch.where(real[:, None], total, torch.zeros_like(total)).to(x.dtype)
    sequences = torch.arange(n, device=x.device)
    last = everything[places(sequences, begins[1:])[:, :kept]]
    return out, last.transpose(1, 2).contiguous()
