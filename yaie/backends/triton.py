"""The backend in Triton: labs 9 to 12."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from yaie.backends.attention import KernelAttention, RotateAndStore
from yaie.backends.base import Roles, register_backend
from yaie.backends.ops import KernelOps
from yaie.backends.torch import TorchBackend
from yaie.core.contracts import BatchAttention, KVPool, Sampler, TransformerOps
from yaie.core.contracts.kernels import LayerKernels, StoreKernel
from yaie.core.errors import ConfigError
from yaie.core.gemm import FusedGemm, PackedGemm
from yaie.core.quantized import Fp8Weight, Int4Weight

if TYPE_CHECKING:
    from yaie.backends.gemm.streamed import StreamedGemm

INTERPRETER = "TRITON_INTERPRET"


class KernelBackend(TorchBackend):
    """What Triton and CUDA C++ have in common: kernels fill a role, or PyTorch does."""

    largest_head_dim = 256
    """What the attention kernels hold in registers and shared memory."""
    worth_a_call: ClassVar[int]
    """See `plan_calls`; measured on an H200, with 32 heads of 128 dimensions in bfloat16."""

    @property
    def may_be_captured(self) -> bool:
        """PyTorch's part of either role may read lengths or values back on the host."""
        return self.has_kernels("attention") and self.has_kernels("ops")

    def make_ops(self) -> TransformerOps:
        if not self.has_kernels("ops"):
            return super().make_ops()
        plain = None if self.has_kernels("attention") else super().make_ops()
        return KernelOps(self._layer_kernels(), plain, self._fused_gemm())

    def make_split_sampler(
        self, first: int, gathered: Callable[[Tensor], Tensor]
    ) -> Sampler | None:
        """A learner's lab 12 draws all tokens itself."""
        (lab,) = self.roles["sampler"]
        if lab != "triton_sampling" or self.parts.is_yours(lab):
            return None
        from yaie.backends.vocab_parallel_sampler import SplitSampler

        return SplitSampler(first, gathered)

    def make_attention(self, pool: KVPool) -> BatchAttention:
        if not self.has_kernels("attention"):
            return super().make_attention(pool)
        flash, paged = (self.parts[lab] for lab in self.roles["attention"])
        return KernelAttention(
            pool,
            self._rotate_and_store(),
            flash.FlashAttention(),
            paged.PagedAttention(),
            self._gather(),
            self.worth_a_call,
            self._few_queries(),
        )

    def _rotate_and_store(self) -> RotateAndStore:
        fused = self._layer_kernels().rope_and_store if self.has_kernels("ops") else None
        return RotateAndStore(self._store_kernel(), fused, self._norm_rope_store())

    def _layer_kernels(self) -> LayerKernels:
        (lab,) = self.roles["ops"]
        kernels: LayerKernels = self.parts[lab].LayerKernels()
        return kernels

    def _store_kernel(self) -> StoreKernel:
        """What writes keys and values to the pool."""
        raise NotImplementedError

    def _norm_rope_store(self) -> Callable[..., None] | None:
        """What norms, rotates and stores in one launch, if nothing of it is to run by itself."""
        return None

    def _fused_gemm(self) -> FusedGemm | None:
        """Products of few rows with norms and activation, if nothing of it is to run by itself."""
        return None

    def _few_queries(self) -> Any:
        """The module that attends with small chunks, if that is not left to PagedAttention."""
        return None

    def _gather(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """What fetches the keys of long chunks, if FlashAttention gains by it."""
        return None


@register_backend("triton")
class TritonBackend(KernelBackend):
    """See `Backend`. On a CPU it needs Triton's interpreter."""

    worth_a_call = (
        2048  # its paged prefill keeps up to there, and a launch takes 0.1 ms of the host
    )
    kernels: ClassVar[Roles] = {
        "ops": ("triton_ops",),
        "attention": ("triton_flash_attention", "triton_paged_attention"),
        "memory": ("triton_ops",),
        "sampler": ("triton_sampling",),
    }

    @classmethod
    def check(cls, device: torch.device) -> str:
        if not has_triton():
            raise ConfigError(
                "backend 'triton' needs Triton: pip install 'yaie[gpu]' (Linux)", param="backend"
            )
        if device.type == "cpu" and not interpreted():
            raise ConfigError(
                "backend 'triton' needs a GPU. On a CPU its kernels run in Triton's interpreter, "
                f"slowly: set {INTERPRETER}=1 in the environment, or leave the backend to auto.",
                param="backend",
            )
        return "in Triton's interpreter, slowly" if interpreted() else ""

    @classmethod
    def in_use(cls, roles: Roles) -> Roles:
        plain = roles["attention"] != cls.kernels["attention"]
        return {**roles, "memory": ()} if plain else roles  # lab 5 stores with lab 3

    def make_packed_gemm(self, device: torch.device) -> PackedGemm:
        """Lab 19's; on a GPU those on weights of four bits and in FP8 by kernels of our own, unless the
        lab is a learner's."""
        plain = super().make_packed_gemm(device)
        if device.type != "cuda" or self.parts.is_yours("quantization"):
            return plain
        from yaie.backends.gemm import PackedFewRows, product_of_many
        from yaie.backends.gemm.streamed import fits
        from yaie.backends.gemm.tiled import TiledWeight, tileable, tiled

        few, ours = PackedFewRows(), self._streamed(device)

        def int4(x: Tensor, weight: Int4Weight | TiledWeight) -> Tensor:
            if isinstance(weight, TiledWeight):
                assert ours is not None
                return ours.product(x, weight)
            if x.dtype not in (torch.float16, torch.bfloat16):
                return plain.int4(x, weight)
            return few.multiply(x, weight) if few.takes(x) else product_of_many(x, weight)

        if ours is None:
            return plain._replace(int4=int4)

        def arranged(weight: Int4Weight, dtype: torch.dtype) -> Int4Weight | TiledWeight:
            return tiled(weight) if dtype == torch.bfloat16 and tileable(weight) else weight

        return plain._replace(
            int4=int4,
            arranged=arranged,
            fp8=ours.product,
            takes_fp8=lambda n, k, dtype: dtype == torch.bfloat16 and fits(n, k),
            fuses=lambda weight: isinstance(weight, TiledWeight | Fp8Weight),
        )

    def _streamed(self, device: torch.device) -> "StreamedGemm | None":
        """Those in CUDA C++, made when they are first asked for."""
        from yaie.backends.gemm.streamed import streamed_gemm

        made: dict[torch.device, StreamedGemm | None] = self.__dict__.setdefault("_made", {})
        if device not in made:
            made[device] = streamed_gemm(device)
        return made[device]

    def _store_kernel(self) -> StoreKernel:
        (lab,) = self.roles["memory"]
        kernels: StoreKernel = self.parts[lab].LayerKernels()
        return kernels

    def _norm_rope_store(self) -> Callable[..., None] | None:
        """The norm and the rotation are a learner's where lab 9 is."""
        if not self.has_kernels("ops") or self.parts.is_yours(*self.roles["ops"]):
            return None
        from yaie.backends.fused import norm_rope_store

        return norm_rope_store

    def _few_queries(self) -> Any:
        """Prefill is a learner's where lab 11 is."""
        _, paged = self.roles["attention"]
        if self.parts.is_yours(paged):
            return None
        from yaie.backends import few_queries

        return few_queries

    def _fused_gemm(self) -> FusedGemm | None:
        """Norms and activation are a learner's where lab 9 is."""
        if self.parts.is_yours(*self.roles["ops"]):
            return None
        from yaie.backends.gemm import FewRows

        return FewRows(self._streamed)


def has_triton() -> bool:
    """Whether Triton can be imported."""
    try:
        import_module("triton")
    except (ImportError, OSError):
        return False
    return True


def interpreted() -> bool:
    """Whether the environment tells Triton to run its kernels in Python."""
    return os.environ.get(INTERPRETER) == "1"
