"""The kernels of `naive.cu`, with the methods of `LayerKernels`. Rows are made contiguous first."""

from torch import Tensor

from .layer_kernels import LIBRARY, stride


class NaiveLayerKernels:
    """See `yaie.core.contracts.kernels.LayerKernels`."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        out, d = x.new_empty(x.shape), x.shape[-1]
        LIBRARY.call("naive_rms_norm", x, weight, out, x.numel() // d, d, eps, x.dtype)
        return out

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Two launches: the sum is written, and read again."""
        LIBRARY.call("naive_add", x.contiguous(), residual, residual.numel(), x.dtype)
        return x.copy_(self.rms_norm(residual, weight, eps)), residual

    def silu_mul(self, x: Tensor) -> Tensor:
        x, d = x.contiguous(), x.shape[-1] // 2
        out = x.new_empty(*x.shape[:-1], d)
        LIBRARY.call("naive_silu_mul", x, out, x.numel() // (2 * d), d, x.dtype)
        return out

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A launch for q, and one for k."""
        for x in (q, k):
            shape, half = x.shape, cos.shape[1]
            LIBRARY.call("naive_rope", x, positions, cos, sin, *shape, half, stride(x), x.dtype)
        return q, k

    def rope_and_store(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        """Four launches, and a copy of k, which stays as it was."""
        turned = k.clone()
        self.rope(q, turned, positions, cos, sin)
        for x, blocks in ((turned, key_blocks), (v, value_blocks)):
            row = x.shape[1:].numel()
            LIBRARY.call("naive_store", x, blocks, slot_mapping, len(x), row, stride(x), x.dtype)
