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
    # BEGIN SOLUTION 22.6
    begin, end = tl.load(starts + seq).to(tl.int64), tl.load(starts + seq + 1).to(tl.int64)
    if (end == begin) | (end - begin > most):
        return
    of_k = tl.arange(0, BLOCK_K)
    of_v = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    in_k, in_v = of_k < D_K, of_v < D_V
    cell = of_k[:, None] * D_V + of_v[None, :]
    at = pool + tl.load(slots + seq) * slot_stride + head * (D_K * D_V) + cell
    real = in_k[:, None] & in_v[None, :]
    has_state = tl.load(is_fresh + seq) == 0
    state = tl.load(at, mask=real & has_state, other=0.0)
    for row in range(begin, end):
        of_head = head // GROUP
        key = tl.load(k + row * k_stride + of_head * k_head + of_k, mask=in_k, other=0.0)
        query = tl.load(q + row * q_stride + of_head * q_head + of_k, mask=in_k, other=0.0)
        value = tl.load(v + row * v_stride + head * v_head + of_v, mask=in_v, other=0.0)
        rate = tl.load(beta + row * beta_stride + head)
        key, query = key.to(tl.float32)[:, None], query.to(tl.float32)[:, None]
        state *= tl.exp(tl.load(log_decay + row * decay_stride + head))
        change = rate * (value.to(tl.float32) - tl.sum(state * key, axis=0))
        state += key * change[None, :]
        read = tl.sum(state * query, axis=0)
        at_out = out + (row * V_HEADS + head) * D_V + of_v
        tl.store(at_out, read.to(out.dtype.element_ty), mask=in_v)
    tl.store(at, state, mask=real)
    # END SOLUTION


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
    # BEGIN SOLUTION 22.6
    delta_step_kernel[triton.cdiv(d_v, block_v), v_heads, len(batch.slots)](
        out, q, k, v, log_decay, beta, pool, batch.starts, batch.slots, is_fresh, most,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], log_decay.stride(0), beta.stride(0),
        pool.stride(0), V_HEADS=v_heads, GROUP=v_heads // heads, D_K=d_k, D_V=d_v, BLOCK_K=block_k,
        BLOCK_V=block_v, num_warps=4,
    )  # fmt: skip
    # END SOLUTION
