"""`FewRows`: what an adapter calls in place of norm, product, gate and addition."""

from collections.abc import Callable

import torch
import triton
from torch import Tensor

from yaie.backends.early import early_launch, starts_early
from yaie.backends.gemm.kernels import norm_kernel, row_kernel, tile_kernel
from yaie.backends.gemm.streamed import MOST_FUSED_ROWS, StreamedGemm
from yaie.backends.gemm.tiles import RowTile, pays, tile_for
from yaie.core.gemm import PlainWeight

StreamedOn = Callable[[torch.device], StreamedGemm | None]


class FewRows:
    """See `yaie.core.gemm.FusedGemm`: one launch each, or one more for the norm of many rows.

    They stand for the reference's norms and activation; where those are a learner's, adapters
    do without.
    """

    def __init__(self, streamed_on: StreamedOn = lambda device: None) -> None:
        """streamed_on: the products in CUDA C++ of a device, None where they cannot be had."""
        self._streamed_on = streamed_on

    def takes(self, hidden: Tensor, product: PlainWeight) -> bool:
        if not hidden.is_cuda or hidden.dtype not in (torch.float16, torch.bfloat16):
            return False
        if not isinstance(product.weight, Tensor):
            return 1 <= len(hidden) <= MOST_FUSED_ROWS
        return pays(*hidden.shape)

    def after_norm(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        return self._multiply(x, product, gain=gain, eps=eps)

    def gated(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        return self._multiply(x, product, gain=gain, eps=eps, is_gated=True)

    def product(self, x: Tensor, product: PlainWeight) -> Tensor:
        return self._multiply(x, product)

    def onto(self, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        return self._multiply(x, product, residual=residual)

    def _multiply(
        self,
        x: Tensor,
        product: PlainWeight,
        *,
        gain: Tensor | None = None,
        eps: float = 0.0,
        residual: Tensor | None = None,
        is_gated: bool = False,
    ) -> Tensor:
        weight, bias = product
        if not isinstance(weight, Tensor):
            streamed = self._streamed_on(x.device)
            assert streamed is not None  # what packs weights so has made it
            if gain is not None:
                x = _norm(x, gain, eps, starts_early(x.device))
            return streamed.few_rows(x, weight, bias, residual=residual, is_gated=is_gated)
        return _triton(x, weight, bias, gain, eps, residual, is_gated)


def _triton(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    eps: float,
    residual: Tensor | None,
    is_gated: bool,
) -> Tensor:
    (rows, k), n = x.shape, len(weight)
    early = starts_early(x.device)
    tile = tile_for(rows, n, k)
    if gain is not None and not isinstance(tile, RowTile):
        x = _norm(x, gain, eps, early)
    out = x.new_empty(rows, n // 2 if is_gated else n) if residual is None else residual
    # A kernel takes every argument: where there is no bias or residual it gets a tensor that it ignores.
    ends = (weight if bias is None else bias, out, out, rows, n)
    flags = {
        "EARLY": early,
        "BIAS": bias is not None,
        "ADD": residual is not None,
        "GATED": is_gated,
    }
    grid = (triton.cdiv(n, tile.block_n),)
    if isinstance(tile, RowTile):
        row_kernel[grid](
            x, weight if gain is None else gain, weight, *ends, eps,
            x.stride(0), out.stride(0), out.stride(0),
            K=k, BLOCK_K=tile.block_k, BLOCK_N=tile.block_n, ROWS=triton.next_power_of_2(rows),
            NORM=gain is not None, num_warps=tile.warps, **flags, **early_launch(early),
        )  # fmt: skip
    else:
        tile_kernel[grid](
            x, weight, *ends, x.stride(0), out.stride(0), out.stride(0),
            K=k, BLOCK_K=tile.block_k, BLOCK_N=tile.block_n, ROWS=tile.rows,
            AHEAD=tile.ahead if x.is_cuda else 0, STAGES=tile.stages, num_warps=tile.warps,
            **flags, **early_launch(early),
        )  # fmt: skip
    return out


def _norm(x: Tensor, gain: Tensor, eps: float, early: bool) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    norm_kernel[(len(x),)](
        x, gain, out, eps, x.stride(0), K=x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]),
        EARLY=early, num_warps=4, **early_launch(early),
    )  # fmt: skip
    return out
