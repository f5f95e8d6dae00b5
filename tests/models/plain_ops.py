"""`PlainOps`: the operations of a decoder layer in the plainest PyTorch, so that tests of the models
depend on no lab."""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.core.gemm import PlainWeight


class PlainOps:
    """Satisfies `yaie.core.contracts.TransformerOps`."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        c, s = cos[positions][:, None], sin[positions][:, None]

        def rotate(x: Tensor) -> Tensor:
            half = cos.shape[1]
            a, b, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
            return torch.cat(
                [(a * c - b * s).to(x.dtype), (b * c + a * s).to(x.dtype), rest], dim=-1
            )

        return rotate(q), rotate(k)

    def silu_mul(self, x: Tensor) -> Tensor:
        gate, up = x.float().chunk(2, dim=-1)
        return (F.silu(gate) * up).to(x.dtype)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        kv_lens: Tensor | None = None,
    ) -> Tensor:
        raise AssertionError("an adapter attends through `attend`, never by itself")


class PlainOpsWithGemm(PlainOps):
    """Also has `yaie.core.gemm.FusedGemm`."""

    def __init__(self) -> None:
        self.fused = CountedGemm(self)


class CountedGemm:
    """One operation after the other. most: rows that it takes; calls: how often it was asked."""

    def __init__(self, ops: PlainOps) -> None:
        self._ops = ops
        self.most = 1000
        self.calls = 0

    def takes(self, hidden: Tensor, product: PlainWeight) -> bool:
        return len(hidden) <= self.most

    def after_norm(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        self.calls += 1
        return F.linear(self._ops.rms_norm(x, gain, eps), *product)

    def gated(self, x: Tensor, gain: Tensor, eps: float, product: PlainWeight) -> Tensor:
        return self._ops.silu_mul(self.after_norm(x, gain, eps, product))

    def product(self, x: Tensor, product: PlainWeight) -> Tensor:
        self.calls += 1
        return F.linear(x, *product)

    def onto(self, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        self.calls += 1
        return residual.add_(F.linear(x, *product))
