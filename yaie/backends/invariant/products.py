"""`InvariantGemm`: products in which a row comes out the same among any number of others.

y [rows, N] = x [rows, K] @ weight [N, K].T. A program has ROWS rows of x and BLOCK_N of the weight, and
walks through the whole of K, STEP numbers at a time: an output is one sum, in one order, and rows that
only fill a tile add nothing to it. No program has a part of K.

There are two tiles, one for few rows and one for many. Both use the same instructions of the tensor
cores along K, so they should agree to the last bit. Whether they do on a GPU is tried at start; if not,
`use_one_tile` leaves only that of many rows.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.backends.gemm.kernels import finish, weight_rows
from yaie.backends.invariant.ops import norm
from yaie.core.gemm import PlainWeight

STEP = 64


@dataclass(frozen=True, slots=True)
class RowsTile:
    """rows: of x. block_n: rows of the weight, at least 64, or Hopper's tensor cores would be used in
    another way. warps, stages: as Triton has them."""

    rows: int
    block_n: int
    warps: int
    stages: int


FEW = RowsTile(16, 64, warps=4, stages=6)
MANY = RowsTile(128, 128, warps=8, stages=3)


@triton.jit(do_not_specialize=["rows"])
def invariant_kernel(
    x, weight, bias, residual, out, rows, N, x_stride, residual_stride, out_stride,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, ADD: tl.constexpr, GATED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (part, tile): ROWS rows of x, BLOCK_N rows of the weight. Neighbours share the latter."""
    program, first = tl.program_id(1), tl.program_id(0).to(tl.int64) * ROWS
    x += first * x_stride
    of_weight = weight_rows(program, N, BLOCK_N, GATED)
    inside = (of_weight < N)[:, None]
    start = weight + of_weight[:, None].to(tl.int64) * K
    ks = tl.arange(0, BLOCK_K)
    row = tl.arange(0, ROWS)
    left = rows - first
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        mask = (k + ks < K)[:, None] & (row < left)[None, :]
        numbers = tl.load(x + row[None, :] * x_stride + k + ks[:, None], mask=mask, other=0.0)
        tile = tl.load(start + k + ks[None, :], mask=inside & (k + ks < K)[None, :], other=0.0)
        sums = tl.dot(tile, numbers, sums)
    finish(
        sums, program, of_weight, bias, residual + first * residual_stride,
        out + first * out_stride, left, N, residual_stride, out_stride,
        BLOCK_N, ROWS, BIAS, ADD, GATED,
    )  # fmt: skip


class InvariantGemm:
    """See `yaie.core.gemm.FusedGemm`. It takes every step: a library's product for some of them
    would be another sum."""

    def __init__(self) -> None:
        self._tiles = (FEW, MANY)

    def use_one_tile(self) -> None:
        """From now on compute few rows as many."""
        self._tiles = (MANY, MANY)

    def takes(self, hidden: Tensor, product: PlainWeight) -> bool:
        is_plain = isinstance(product.weight, Tensor)
        return is_plain and hidden.dtype in (torch.float16, torch.bfloat16)

    def after_norm(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        return self._multiply(norm(x, gain, eps), product)

    def gated(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        return self._multiply(norm(x, gain, eps), product, is_gated=True)

    def product(self, x: Tensor, product: PlainWeight) -> Tensor:
        return self._multiply(x, product)

    def onto(self, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        return self._multiply(x, product, residual=residual)

    def in_float32(self, x: Tensor, product: PlainWeight) -> Tensor:
        """product(x), never rounded: [rows, out] float32."""
        return self._multiply(x, product, dtype=torch.float32)

    def _multiply(
        self,
        x: Tensor,
        product: PlainWeight,
        *,
        residual: Tensor | None = None,
        is_gated: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        weight, bias = product
        (rows, k), n = x.shape, len(weight)
        width = n // 2 if is_gated else n
        out = x.new_empty(rows, width, dtype=dtype) if residual is None else residual
        if not rows:
            return out
        few, many = self._tiles
        tile = few if rows <= few.rows else many
        grid = (triton.cdiv(rows, tile.rows), triton.cdiv(n, tile.block_n))
        # A kernel takes every argument: where there is no bias it gets a tensor that it ignores.
        invariant_kernel[grid](
            x, weight, weight if bias is None else bias, out, out, rows, n,
            x.stride(0), out.stride(0), out.stride(0),
            K=k, BLOCK_K=STEP, BLOCK_N=tile.block_n, ROWS=tile.rows, BIAS=bias is not None,
            ADD=residual is not None, GATED=is_gated, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
        return out
