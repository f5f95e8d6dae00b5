"""The backend in CUDA C++: labs 13 to 16."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from yaie.backends import triton
from yaie.backends.base import PLAIN, Roles, register_backend
from yaie.backends.pool import KernelPool
from yaie.backends.triton import KernelBackend
from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import KVPool
from yaie.core.contracts.kernels import MemoryKernels, StoreKernel
from yaie.core.errors import ConfigError
from yaie.cuda import compiler, nvcc
from yaie.curriculum.manifest import load_curriculum


@register_backend("cuda")
class CudaBackend(KernelBackend):
    """See `Backend`. nvcc compiles it for a GPU; on a CPU it runs in `yaie.cuda.on_cpu`."""

    worth_a_call = 256  # its paged prefill of a prompt of 512 takes three times as long
    kernels: ClassVar[Roles] = {
        "ops": ("cuda_ops",),
        "attention": ("cuda_flash_attention", "cuda_paged_attention"),
        "memory": ("cuda_memory_ops",),
        "sampler": ("triton_sampling",),
    }

    @classmethod
    def check(cls, device: torch.device) -> str:
        if device.type != "cpu":
            return ""
        if nvcc.find_host_compiler() is None:
            raise ConfigError(
                "backend 'cuda' runs on a CPU once a C++ compiler compiles its kernels, and there is "
                "none: install g++ or clang++, or leave the backend to auto.",
                param="backend",
            )
        return "CUDA C++ on the CPU, every access checked, very slowly"

    @classmethod
    def kernels_on(cls, device: torch.device) -> Roles:
        """Labs 1 and 12 draw the same tokens; Triton's interpreter would only make it slower."""
        if device.type == "cuda" and triton.has_triton():
            return cls.kernels
        return {**cls.kernels, "sampler": PLAIN["sampler"]}

    def prepare(self, device: torch.device) -> None:
        if device.type != "cuda":
            return
        architecture = nvcc.device_architecture(device.index or 0)
        for part in self.parts.table():
            if "cuda-on-cpu" in load_curriculum()[part.lab].verify:
                compiler.library_for(part.folder, architecture)

    def make_pool(
        self,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int,
    ) -> KVPool:
        self.refuse_misfits(layers, dtype)
        return KernelPool(
            self._memory_kernels(), layers, num_blocks, block_size, dtype, device, num_host_blocks
        )

    def _store_kernel(self) -> StoreKernel:
        return self._memory_kernels()

    def _gather(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Its FlashAttention is up to four times as fast as its paged prefill."""
        return self._memory_kernels().gather

    def _memory_kernels(self) -> MemoryKernels:
        (lab,) = self.roles["memory"]
        kernels: MemoryKernels = self.parts[lab].MemoryKernels()
        return kernels
