"""The gated delta rule (Yang et al. 2024): a matrix in which a key writes over what it finds."""

import torch
from torch import Tensor


# ANCHOR: delta_step
def delta_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.DeltaStep`. Overwrites `states`, and returns them."""
    # BEGIN SOLUTION 22.2
    q, k, v, log_decay, beta = (one.to(states.dtype) for one in (q, k, v, log_decay, beta))
    group = v.shape[1] // k.shape[1]
    q, k = (one.repeat_interleave(group, 1) for one in (q, k))
    states *= log_decay.exp()[..., None, None]
    found = (k[..., None, :] @ states).squeeze(-2)
    states += k[..., None] * (beta[..., None] * (v - found))[..., None, :]
    return (q[..., None, :] @ states).squeeze(-2), states
    # END SOLUTION


# ANCHOR_END: delta_step


# ANCHOR: decays
def decays(log_decay: Tensor) -> Tensor:
    """From log_decay [..., C], what is left at token t of what token s wrote: [..., t, s], 0 for t < s.

    That is exp(log_decay_(s+1) + ... + log_decay_t), each from a sum of its own, and no difference of
    two sums: weak decays after a strong one keep their digits, and no exponent is above 0.
    """
    # BEGIN SOLUTION 22.3
    steps = log_decay[..., :, None].expand(*log_decay.shape, log_decay.shape[-1])
    return steps.tril(-1).cumsum(-2).exp().tril()
    # END SOLUTION


# ANCHOR_END: decays


# ANCHOR: delta_chunk
def delta_chunk(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.DeltaChunk`.

    Token t writes k_t u_t^T, where u_t = beta_t (v_t - what the state holds for k_t). The state holds
    what was there before the chunk, S, and what the tokens s < t have written:

        u_t = beta_t (v_t - from_start_t S^T k_t - sum over s < t of left_ts (k_t . k_s) u_s)

    left is `decays(log_decay)`, and from_start_t = exp(log_decay_1 + ... + log_decay_t). That is a
    triangular system for all u of the chunk (the WY form of https://arxiv.org/abs/2406.06484).
    """
    q, k, v, log_decay, beta = (one.to(states.dtype) for one in (q, k, v, log_decay, beta))
    heads, group = k.shape[2], v.shape[2] // k.shape[2]
    q, k = (one.transpose(1, 2)[:, :, None] for one in (q, k))  # [n, heads, 1, C, d_k]
    v, log_decay, beta = (by_group(one, heads, group) for one in (v, log_decay, beta))
    before = states.unflatten(1, (heads, group))  # [n, heads, group, d_k, d_v]
    # BEGIN SOLUTION 22.3
    left = decays(log_decay)
    from_start = log_decay.cumsum(-1).exp()[..., None]
    beta = beta[..., None]
    system = beta * (k @ k.mT) * left  # its diagonal counts as ones
    wanted = beta * (v - from_start * (k @ before))
    u = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    out = from_start * (q @ before) + ((q @ k.mT) * left) @ u
    to_end = left[..., -1, :, None]
    after = from_start[..., -1:, :] * before + k.mT @ (to_end * u)
    # END SOLUTION
    return out.flatten(1, 2).transpose(1, 2), after.flatten(1, 2)


# ANCHOR_END: delta_chunk


def by_group(one: Tensor, heads: int, group: int) -> Tensor:
    """[n, C, heads * group, ...] as [n, heads, group, C, ...]: the value heads of each key head."""
    return one.transpose(1, 2).unflatten(1, (heads, group))
