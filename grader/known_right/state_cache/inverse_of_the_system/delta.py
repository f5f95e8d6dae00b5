"""The rule by einsum on new tensors; a chunk by the inverse of its system, as papers write it."""

import torch
from torch import Tensor


def delta_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.DeltaStep`."""
    dtype, group = states.dtype, v.shape[1] // k.shape[1]
    left = states.unflatten(1, (k.shape[1], group))
    left = left * log_decay.to(dtype).exp().unflatten(1, (-1, group))[..., None, None]
    key, query = k.to(dtype), q.to(dtype)
    value = v.to(dtype).unflatten(1, (-1, group))
    rate = beta.to(dtype).unflatten(1, (-1, group))[..., None]
    change = rate * (value - torch.einsum("nhgkv,nhk->nhgv", left, key))
    after = left + torch.einsum("nhk,nhgv->nhgkv", key, change)
    return torch.einsum("nhgkv,nhk->nhgv", after, query).flatten(1, 2), after.flatten(1, 2)


def decays(log_decay: Tensor) -> Tensor:
    """Sums over masked copies: row t adds up what comes after s."""
    length = log_decay.shape[-1]
    t = torch.arange(length, device=log_decay.device)
    later = t[:, None] > t[None, :]
    copies = log_decay.unsqueeze(-1).masked_fill(~later, 0.0)
    sums = copies.cumsum(-2)
    return sums.exp().masked_fill(t[:, None] < t[None, :], 0.0)


def delta_chunk(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.DeltaChunk`."""
    dtype, group = states.dtype, v.shape[2] // k.shape[2]
    query, key = (one.to(dtype).repeat_interleave(group, 2).transpose(1, 2) for one in (q, k))
    value, gate, rate = (one.to(dtype).transpose(1, 2) for one in (v, log_decay, beta))
    left, since = decays(gate), gate.cumsum(-1).exp().unsqueeze(-1)
    rate = rate.unsqueeze(-1)
    identity = torch.eye(gate.shape[-1], dtype=dtype, device=q.device)
    system = identity + (rate * (key @ key.transpose(-1, -2)) * left).tril(-1)
    inverse = torch.linalg.solve_triangular(system, identity.expand_as(system), upper=False)
    # u = inverse (beta v) - inverse (beta since k) S: both factors come before any state is known.
    written = inverse @ (rate * value) - (inverse @ (rate * since * key)) @ states
    seen = (query @ key.transpose(-1, -2)) * left
    out = (since * query) @ states + seen @ written
    until = left[..., -1, :].unsqueeze(-1)
    after = states * since[..., -1:, :] + (until * key).transpose(-1, -2) @ written
    return out.transpose(1, 2), after
