"""Makes what a backend runs on out of the parts in use."""

from collections.abc import Sequence
from typing import Any

import torch

from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.contracts import KVPool, RadixAttention, Sampler, TransformerOps
from yaie.core.cuda import compiler, nvcc
from yaie.core.errors import ConfigError
from yaie.core.kernels import LayerKernels, StoreKernel
from yaie.engine.backends.attention import KernelAttention
from yaie.engine.backends.choice import Backend, with_plain_attention
from yaie.engine.backends.ops import KernelOps
from yaie.engine.backends.pool import KernelPool
from yaie.parts import Parts

WIDEST_HEAD = 256
"""Dimensions of a head that the attention kernels hold in registers and shared memory."""


def prepare(backend: Backend, parts: Parts, device: torch.device) -> None:
    """Compile what the first request would otherwise wait for. Raises KernelError."""
    if backend.name == "cuda" and device.type == "cuda":
        architecture = nvcc.device_architecture(device.index or 0)
        for part in parts.table():
            if part.lab.startswith("cuda_"):
                compiler.library_for(part.folder, architecture)


def make_ops(backend: Backend, parts: Parts) -> TransformerOps:
    """What adapters compute with."""
    plain: TransformerOps | None = None
    if "transformer_ops" in backend.labs:
        plain = parts["transformer_ops"].TransformerOps()
    if backend.has_kernels("ops"):
        return KernelOps(_layer_kernels(backend, parts), plain)
    assert plain is not None
    return plain


def make_pool(
    backend: Backend,
    parts: Parts,
    config: EngineConfig,
    layers: Sequence[KVLayerSpec],
    num_blocks: int,
    num_host_blocks: int,
    dtype: torch.dtype,
    device: torch.device,
) -> KVPool:
    """The memory of keys and values."""
    sizes: tuple[Any, ...] = (layers, num_blocks, config.block_size, dtype, device, num_host_blocks)
    if backend.name == "cuda":
        return KernelPool(parts["cuda_memory_ops"].MemoryKernels(), *sizes)
    pool: KVPool = parts["paged_cache"].KVPool(*sizes)
    return pool


def fitted(backend: Backend, config: EngineConfig, layers: Sequence[KVLayerSpec]) -> Backend:
    """The backend for a model with these layers: kernels for attention only if its heads fit them.

    Raises ConfigError if they do not, and the backend was asked for by name.
    """
    widest = max(layer.head_dim for layer in layers)
    if widest <= WIDEST_HEAD or not backend.has_kernels("attention"):
        return backend
    if config.backend != "auto":
        raise ConfigError(
            f"this model's heads have {widest} dimensions and the attention kernels of backend "
            f"{backend.name!r} take at most {WIDEST_HEAD}: leave the backend to auto",
            param="backend",
        )
    return with_plain_attention(backend)


def make_attention(backend: Backend, parts: Parts, pool: KVPool) -> RadixAttention:
    """What writes to the pool and attends."""
    if not backend.has_kernels("attention"):
        ops = make_ops(backend, parts)
        attention: RadixAttention = parts["radix_attention"].RadixAttention(pool, ops)
        return attention
    flash, paged = (parts[lab] for lab in backend.roles["attention"])
    fused = gather = None
    if backend.has_kernels("ops"):
        fused = _layer_kernels(backend, parts).rope_and_store
    if backend.name == "cuda":  # its FlashAttention is several times as fast as its paged prefill
        gather = parts["cuda_memory_ops"].MemoryKernels().gather
    return KernelAttention(
        pool,
        _store_kernel(backend, parts),
        flash.FlashAttention(),
        paged.PagedAttention(),
        fused,
        gather,
    )


def make_sampler(backend: Backend, parts: Parts) -> Sampler:
    """What draws the tokens."""
    (lab,) = backend.roles["sampler"]
    sampler: Sampler = parts[lab].Sampler()
    return sampler


def _layer_kernels(backend: Backend, parts: Parts) -> LayerKernels:
    (lab,) = backend.roles["ops"]
    kernels: LayerKernels = parts[lab].LayerKernels()
    return kernels


def _store_kernel(backend: Backend, parts: Parts) -> StoreKernel:
    part = parts[backend.roles["memory"][0]]
    kind = part.MemoryKernels if backend.name == "cuda" else part.LayerKernels
    kernels: StoreKernel = kind()
    return kernels
