# Lab 22, your part (edition 2): task 22.6. The rest is given.
"""A decode step of the gated delta rule as one kernel: the state passes through registers, once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.contracts.states import StateBatch

COLUMNS = 32
"""Of a head's state, in a program. Measured on an H200."""


# ANCHOR: kernel
@triton.jit(do_not_specialize=["most"])
def delta_step_kernel(
    out, q, k, v, log_decay, beta, pool, starts, slots, is_fresh, most, q_stride, q_head, k_stride,
    k_head, v_stride, v_head, decay_stride, beta_stride, slot_stride, V_HEADS: tl.constexpr,
    GROUP: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Program (block, value head, sequence): BLOCK_V columns of a state, through a sequence's tokens.

    A sequence without tokens, or with more than `most`, is left alone, and so is its slot. Value head h
    goes with the queries and keys of head h // GROUP. out and a slot's matrices are contiguous; of q, k,
    v, log_decay and beta the last dimension is. BLOCK_K: the power of two from D_K on.
    """
    head, seq = tl.program_id(1), tl.program_id(2)
    # TODO 22.6: your code here (the reference: 25 lines).
    raise NotImplementedError(
        "state_cache task 22.6: not implemented yet; see chapter Hybrid models"
    )


# ANCHOR_END: kernel


def delta_decode(
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    pool: Tensor,
    batch: StateBatch,
    most: int,
) -> None:
    """See `yaie.core.contracts.states.DeltaDecode`."""
    (_, heads, d_k), (_, v_heads, d_v) = k.shape, v.shape
    block_k, block_v = (max(16, triton.next_power_of_2(side)) for side in (d_k, min(d_v, COLUMNS)))
    is_fresh = batch.is_fresh.view(torch.uint8)
    if not len(batch.slots):
        return
    # TODO 22.6: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "state_cache task 22.6: not implemented yet; see chapter Hybrid models"
    )
