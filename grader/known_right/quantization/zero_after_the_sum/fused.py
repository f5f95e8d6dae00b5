"""Codes are multiplied as they are, and the zero is taken off each group's sum; outputs come first in
the grid."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.quantized import Int4Weight


@triton.jit
def int4_kernel(
    x, qweight, scales, qzeros, out, M, N, K, x_stride, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[M, N] = x[M, K] @ weight^T. A program makes a tile [BLOCK_M, BLOCK_N]; out: contiguous.

    BLOCK_K divides GROUP, which divides K: the inputs of a step are of one group, and M and N alone need
    masks. code - zero is a small whole number, exact in every dtype: it is multiplied as x's dtype, and
    each step's sum by its group's scale in float32. One word is loaded for eight codes.
    """
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask, column_mask = rows < M, columns < N
    long_rows = rows.to(tl.int64)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    nibble = (columns % 8) * 4
    for group in range(K // GROUP):
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        heap = tl.zeros((BLOCK_M,), tl.float32)
        for step in range(GROUP // BLOCK_K):
            begin = group * GROUP + step * BLOCK_K
            inputs = begin + tl.arange(0, BLOCK_K)
            tile = tl.load(
                x + long_rows[:, None] * x_stride + inputs[None, :],
                mask=row_mask[:, None],
                other=0.0,
            )
            words = (begin // 8 + tl.arange(0, BLOCK_K // 8)).to(tl.int64)
            at = qweight + words[:, None] * N + columns[None, :]
            packed = tl.load(at, mask=column_mask[None, :], other=0)
            lanes = tl.arange(0, 8)[None, :, None] * 4
            codes = tl.reshape((packed[:, None, :] >> lanes) & 15, (BLOCK_K, BLOCK_N))
            sums = tl.dot(tile, codes.to(tile.dtype), sums, input_precision="ieee")
            heap += tl.sum(tile.to(tl.float32), axis=1)
        zeros = tl.load(qzeros + group * (N // 8) + columns // 8, mask=column_mask, other=0)
        zeros = ((zeros >> nibble) & 15).to(tl.float32)
        scale = tl.load(scales + group * N + columns, mask=column_mask, other=0.0).to(tl.float32)
        total += (sums - heap[:, None] * zeros[None, :]) * scale[None, :]
    at = out + long_rows[:, None] * N + columns[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=row_mask[:, None] & column_mask[None, :])


class FusedInt4:
    """See `yaie.core.contracts.quantizing.FusedInt4`."""

    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x."""
        m, k = x.shape
        n = weight.out_features
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        if not m:
            return out
        block_m, block_n, block_k = tile(m, n, weight.group_size)
        int4_kernel[(triton.cdiv(n, block_n), triton.cdiv(m, block_m))](
            x, weight.qweight, weight.scales, weight.qzeros, out, m, n, k, x.stride(0),
            GROUP=weight.group_size, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
            num_warps=4,
        )  # fmt: skip
        return out


def tile(m: int, n: int, group_size: int) -> tuple[int, int, int]:
    """(BLOCK_M, BLOCK_N, BLOCK_K). `tl.dot` takes no side under 16. With few rows the weight's bytes
    are all there is to do, so its outputs are shared out among more programs."""
    block_m = min(64, max(16, triton.next_power_of_2(m)))
    block_k = 16
    while block_k < 128 and group_size % (2 * block_k) == 0:
        block_k *= 2
    return block_m, 32 if m <= 16 else 64, block_k
