"""Products of many rows on weights of four bits: the weight unpacked, then the library's product.

With many rows a product is arithmetic, and the library's is the fastest; what is written and read once
more is the weight, however many rows there are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.backends.gemm.packed import MAGIC, STEP, numbers_of, packed_words, scales_for
from yaie.core.quantized import Int4Weight

BLOCK_N = 128


@triton.jit
def unpack_kernel(
    qweight, scales, qzeros, out, N, K: tl.constexpr, GROUP: tl.constexpr, WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr, MAGIC: tl.constexpr, EVEN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """out [K, N]. Program (tile, part): BLOCK_N outputs and the inputs of WORDS words."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    packed = packed_words(qweight, scales, qzeros, word, columns, N, K, GROUP, MAGIC, EVEN)
    mask = (word < K // 8)[:, None] & (columns < N)[None, :]
    at = out + (8 * word).to(tl.int64)[:, None] * N + columns[None, :]
    for number in tl.static_range(8):
        numbers = numbers_of(packed, number, out.dtype.element_ty, FAST)
        tl.store(at + number * N, numbers, mask=mask)


def unpacked(weight: Int4Weight, dtype: torch.dtype) -> Tensor:
    """[in, out] of `dtype`, float16 or bfloat16: (code - zero) * scale, the scale rounded first."""
    k, n = weight.in_features, weight.out_features
    out = torch.empty(k, n, dtype=dtype, device=weight.qweight.device)
    grid = (triton.cdiv(n, BLOCK_N), triton.cdiv(k, STEP))
    unpack_kernel[grid](
        weight.qweight, scales_for(weight, dtype), weight.qzeros, out, n, K=k,
        GROUP=weight.group_size, WORDS=STEP // 8, BLOCK_N=BLOCK_N, MAGIC=MAGIC[dtype],
        EVEN=getattr(weight, "is_even", False), FAST=out.is_cuda,
    )  # fmt: skip
    return out


def product_of_many(x: Tensor, weight: Int4Weight) -> Tensor:
    """x [rows, in] @ dequantize(weight).T: [rows, out]."""
    return x @ unpacked(weight, x.dtype)
