# Lab 19, your part (edition 2): task 19.6. The rest is given.
"""The product on packed weights as one kernel in Triton: four bits travel, floats live in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.quantized import Int4Weight


# ANCHOR: kernel
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
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    # TODO 19.6: your code here (the reference: 21 lines).
    raise NotImplementedError(
        "quantization task 19.6: not implemented yet; see chapter Quantization"
    )


# ANCHOR_END: kernel


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
        # TODO 19.6: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "quantization task 19.6: not implemented yet; see chapter Quantization"
        )
        return out


def tile(m: int, n: int, group_size: int) -> tuple[int, int, int]:
    """(BLOCK_M, BLOCK_N, BLOCK_K). `tl.dot` takes no side under 16. With few rows the weight's bytes
    are all there is to do, so its outputs are shared out among more programs."""
    block_m = min(64, max(16, triton.next_power_of_2(m)))
    block_k = 16
    while block_k < 128 and group_size % (2 * block_k) == 0:
        block_k *= 2
    return block_m, 32 if m <= 16 else 64, block_k
