"""`CpuBackend`: the library, and the labs that stand where it has no kernel."""

from typing import ClassVar

import torch

from yaie.backends.base import PLAIN, Roles, register_backend
from yaie.backends.cpu import build
from yaie.backends.cpu.attention import CpuAttention
from yaie.backends.cpu.blocks import CpuBlockGemm, InterleavedBlocks
from yaie.backends.cpu.fused import CpuFusedGemm
from yaie.backends.cpu.gemm import CpuGemm
from yaie.backends.cpu.library import library
from yaie.backends.cpu.ops import CpuOps
from yaie.backends.torch import TorchBackend
from yaie.core.contracts import BatchAttention, KVPool, TransformerOps
from yaie.core.errors import ConfigError
from yaie.core.gemm import BlockGemm, PackedGemm


@register_backend("cpu")
class CpuBackend(TorchBackend):
    """See `Backend`. What the library has no kernel for is PyTorch's."""

    kernels: ClassVar[Roles] = {**PLAIN, "attention": ()}
    # Lab 5 calls lab 2, whose attention is seen at work only with it.
    yields_to: ClassVar[Roles] = {**PLAIN, "attention": ("radix_attention", "transformer_ops")}
    dtypes = (torch.float32, torch.bfloat16)

    @classmethod
    def check(cls, device: torch.device) -> str:
        why = build.missing()
        if device.type != "cpu":
            why = "it computes on a CPU"
        if why:
            raise ConfigError(
                f"backend 'cpu' cannot be used: {why}. Or leave the backend to auto.",
                param="backend",
            )
        return "attention and norms in C++, compiled for this processor"

    @property
    def why_not_captured(self) -> str:
        return "C++ computes attention or ops"

    def prepare(self, device: torch.device) -> None:
        library()

    def make_ops(self) -> TransformerOps:
        plain = super().make_ops()
        if self.parts.is_yours("transformer_ops"):
            return plain
        return CpuOps(library(), plain, CpuFusedGemm(CpuBlockGemm(library())))

    def make_packed_gemm(self, device: torch.device) -> PackedGemm:
        plain = super().make_packed_gemm(device)
        if self.parts.is_yours("quantization"):
            return plain
        ours = CpuGemm(library(), plain)
        return PackedGemm(
            ours.int8,
            ours.int4,
            ours.arranged,
            fuses=lambda weight: isinstance(weight, InterleavedBlocks),
            arranged_int8=ours.arranged_int8,
        )

    def make_block_gemm(self, device: torch.device) -> BlockGemm | None:
        return CpuBlockGemm(library())

    def make_attention(self, pool: KVPool) -> BatchAttention:
        if not self.has_kernels("attention"):
            return super().make_attention(pool)
        return CpuAttention(
            pool,
            library(),
            rotates=not self.parts.is_yours("transformer_ops"),
            stores=not self.parts.is_yours("paged_cache"),
        )
