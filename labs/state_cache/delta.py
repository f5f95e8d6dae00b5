# Lab 22, your part (edition 2): tasks 22.2, 22.3. The rest is given.
"""The gated delta rule (Yang et al. 2024): a matrix in which a key writes over what it finds."""

import torch
from torch import Tensor


# ANCHOR: delta_step
def delta_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """See `yaie.core.contracts.states.DeltaStep`. Overwrites `states`, and returns them."""
    # TODO 22.2: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "state_cache task 22.2: not implemented yet; see chapter Hybrid models"
    )


# ANCHOR_END: delta_step


# ANCHOR: decays
def decays(log_decay: Tensor) -> Tensor:
    """From log_decay [..., C], what is left at token t of what token s wrote: [..., t, s], 0 for t < s.

    That is exp(log_decay_(s+1) + ... + log_decay_t), each from a sum of its own, and no difference of
    two sums: weak decays after a strong one keep their digits, and no exponent is above 0.
    """
    # TODO 22.3: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "state_cache task 22.3: not implemented yet; see chapter Hybrid models"
    )


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
    # TODO 22.3: your code here (the reference: 9 lines).
    raise NotImplementedError(
        "state_cache task 22.3: not implemented yet; see chapter Hybrid models"
    )
    return out.flatten(1, 2).transpose(1, 2), after.flatten(1, 2)


# ANCHOR_END: delta_chunk


def by_group(one: Tensor, heads: int, group: int) -> Tensor:
    """[n, C, heads * group, ...] as [n, heads, group, C, ...]: the value heads of each key head."""
    return one.transpose(1, 2).unflatten(1, (heads, group))
