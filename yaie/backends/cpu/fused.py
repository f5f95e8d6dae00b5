"""Products with weights in blocks together with what stands around them, in one call of the library."""

from torch import Tensor

from yaie.backends.cpu.blocks import DTYPES, CpuBlockGemm, InterleavedBlocks
from yaie.core.gemm import PlainWeight


class CpuFusedGemm:
    """See `FusedGemm`."""

    def __init__(self, gemm: CpuBlockGemm) -> None:
        self._gemm = gemm

    def takes(self, hidden: Tensor, product: PlainWeight) -> bool:
        is_here = isinstance(product.weight, InterleavedBlocks) and hidden.dtype in DTYPES
        return is_here and self._gemm.is_best(hidden)

    def after_norm(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        out = x.new_empty(len(x), sum(product.weight.sizes))
        self._gemm.multiply(x, product.weight, out, bias=product.bias, gain=gain, eps=eps)
        return out

    def gated(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        out = x.new_empty(len(x), sum(product.weight.sizes) // 2)
        self._gemm.multiply(
            x, product.weight, out, bias=product.bias, gain=gain, eps=eps, gated=True
        )
        return out

    def product(self, x: Tensor, product: PlainWeight) -> Tensor:
        out = x.new_empty(len(x), sum(product.weight.sizes))
        self._gemm.multiply(x, product.weight, out, bias=product.bias)
        return out

    def onto(self, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        self._gemm.multiply(x, product.weight, residual, bias=product.bias, residual=residual)
        return residual
