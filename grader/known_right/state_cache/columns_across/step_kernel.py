"""One number for all programs, and a tile with the state's columns as its rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.contracts.states import StateBatch


@triton.jit
def delta_step_kernel(
    out, q, k, v, log_decay, beta, pool, starts, slots, is_fresh, most, q_stride, q_head, k_stride,
    k_head, v_stride, v_head, decay_stride, beta_stride, slot_stride, V_HEADS: tl.constexpr,
    GROUP: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Program number: all blocks of a head, all heads of a sequence, one sequence after the other."""
    number = tl.program_id(0)
    block, head, seq = number % BLOCKS, number // BLOCKS % V_HEADS, number // (BLOCKS * V_HEADS)
    begin = tl.load(starts + seq).to(tl.int64)
    length = tl.load(starts + seq + 1).to(tl.int64) - begin
    if (length > 0) & (length <= most):
        row = block * COLUMNS + tl.arange(0, COLUMNS)[:, None]
        column = tl.arange(0, ROWS)[None, :]
        inside = (row < D_V) & (column < D_K)
        place = pool + tl.load(slots + seq) * slot_stride + head * D_K * D_V + column * D_V + row
        kept = inside & (tl.load(is_fresh + seq) == 0)
        state = tl.load(place, mask=kept, other=0.0)
        for step in range(length):
            t = begin + step
            at = t * k_stride + head // GROUP * k_head + column
            key = tl.load(k + at, mask=column < D_K, other=0.0).to(tl.float32)
            at = t * q_stride + head // GROUP * q_head + column
            query = tl.load(q + at, mask=column < D_K, other=0.0).to(tl.float32)
            at = t * v_stride + head * v_head + row
            value = tl.load(v + at, mask=row < D_V, other=0.0).to(tl.float32)
            state = state * tl.exp(tl.load(log_decay + t * decay_stride + head))
            found = tl.sum(state * key, axis=1)[:, None]
            state += tl.load(beta + t * beta_stride + head) * (value - found) * key
            read = tl.sum(state * query, axis=1)[:, None]
            at = (t * V_HEADS + head) * D_V + row
            tl.store(out + at, read.to(out.dtype.element_ty), mask=row < D_V)
        tl.store(place, state, mask=inside)


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
    d_k, (v_heads, d_v) = k.shape[2], v.shape[1:]
    columns = 16
    blocks, n = triton.cdiv(d_v, columns), len(batch.slots)
    if n:
        delta_step_kernel[(blocks * v_heads * n,)](
            out, q, k, v, log_decay, beta, pool, batch.starts, batch.slots,
            batch.is_fresh.to(torch.int8), most, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
            v.stride(0), v.stride(1), log_decay.stride(0), beta.stride(0), pool.stride(0),
            V_HEADS=v_heads, GROUP=v_heads // k.shape[1], D_K=d_k, D_V=d_v,
            ROWS=max(16, triton.next_power_of_2(d_k)), COLUMNS=columns, BLOCKS=blocks,
        )  # fmt: skip
