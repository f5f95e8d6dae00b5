"""Attention of the libraries that are timed beside ours: FlashInfer, and FlashAttention-3 (FA3).

cuDNN's is part of PyTorch and needs nothing but `SDPBackend.CUDNN_ATTENTION`. FlashInfer has two
templates for Hopper: `fa2`, and `fa3`, its own implementation after FlashAttention-3's paper.
FlashAttention-3 itself comes as `flash_attn_interface` from its authors, or in a build that vLLM ships,
for sequences of different lengths only. What is planned once a step, for all layers, is planned before
anything is timed.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.bench.kernels.case import DTYPE, Run

FLASHINFER = ("flashinfer fa2", "flashinfer fa3")
FA3 = "flash-attn 3"
FA3_HOMES = ("flash_attn_interface", "vllm.vllm_flash_attn")
WORKSPACE = 256 << 20
"""Bytes that FlashInfer is given for its plan and for partial results."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Sequences of one length whose keys lie in blocks.

    tables: int32 [n, blocks of each]. lens: int32 [n], keys of each. starts: int32 [n + 1], where the
    queries of each begin. new: queries of each. length: keys of each.
    """

    tables: Tensor
    lens: Tensor
    starts: Tensor
    new: int
    length: int
    heads: int
    kv_heads: int
    dim: int
    block: int
    scale: float


def lacking(name: str) -> str | None:
    """Why the run of this name cannot be timed here; None if it can, or is no library's."""
    if name.startswith("flashinfer"):
        return None if _found("flashinfer") else "the package flashinfer is not installed"
    if name == FA3 and fa3_home() is None:
        return f"neither {' nor '.join(FA3_HOMES)} is installed"
    return None


def fa3_home() -> str | None:
    """The module that has FlashAttention-3, the authors' before vLLM's."""
    return next((name for name in FA3_HOMES if _found(name)), None)


def versions() -> dict[str, str]:
    """Of the libraries that are here; FlashAttention-3's says from where."""
    found = {}
    if _found("flashinfer"):
        found["flashinfer"] = _version("flashinfer")
    if home := fa3_home():
        package = home.partition(".")[0]
        found[FA3] = f"of {package} {_version(package)}"
    return found


def flashinfer_prompt(backend: str, scale: float) -> Callable[[], Run]:
    """Causal attention of one whole prompt: q, k, v [1, t, heads, d]."""

    def make() -> Run:
        from flashinfer import single_prefill_with_kv_cache

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = single_prefill_with_kv_cache(
                q[0], k[0], v[0], causal=True, sm_scale=scale, backend=backend
            )
            return out[None]

        return run

    return make


def fa3_prompt(scale: float) -> Callable[[], Run]:
    """The same by FlashAttention-3."""

    def make() -> Run:
        home = fa3_home()
        module = importlib.import_module(str(home))
        if home == FA3_HOMES[0]:

            def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                out = module.flash_attn_func(q, k, v, softmax_scale=scale, causal=True)
                return _first(out)

            return whole

        bounds: dict[int, Tensor] = {}

        def varied(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            length = q.shape[1]
            if length not in bounds:  # in the first run, which is not timed
                bounds[length] = torch.tensor([0, length], dtype=torch.int32, device=q.device)
            out = module.flash_attn_varlen_func(
                q[0], k[0], v[0], length, bounds[length], length,
                cu_seqlens_k=bounds[length], softmax_scale=scale, causal=True, fa_version=3,
            )  # fmt: skip
            return _first(out)[None]

        return varied

    return make


def flashinfer_pages(backend: str, pages: Pages) -> Callable[[], Run]:
    """Attention over blocks: q [n * new, heads, d], k and v [blocks, block, kv_heads, d]."""

    def make() -> Run:
        import flashinfer

        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=pages.tables.device)
        n, each = pages.tables.shape
        ends = torch.arange(0, n * each + 1, each, dtype=torch.int32, device=pages.tables.device)
        last = torch.full_like(pages.lens, (pages.length - 1) % pages.block + 1)
        blocks = (ends, pages.tables.flatten(), last)
        shape = (pages.heads, pages.kv_heads, pages.dim, pages.block)
        kinds = {"sm_scale": pages.scale, "q_data_type": DTYPE, "kv_data_type": DTYPE}
        if pages.new == 1:
            decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                workspace, "NHD", use_tensor_cores=True, backend=backend
            )
            decode.plan(*blocks, *shape, **kinds)
            return lambda q, k, v: decode.run(q, (k, v))
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=backend)
        prefill.plan(pages.starts, *blocks, *shape, causal=True, **kinds)
        return lambda q, k, v: prefill.run(q, (k, v))

    return make


def fa3_pages(pages: Pages) -> Callable[[], Run]:
    """The same by FlashAttention-3, which schedules its tiles ahead as FlashInfer plans."""

    def make() -> Run:
        home = fa3_home()
        module = importlib.import_module(str(home))
        ahead = module.get_scheduler_metadata(
            len(pages.lens), pages.new, pages.length, pages.heads, pages.kv_heads, pages.dim, pages.lens,
            qkv_dtype=DTYPE, cu_seqlens_q=pages.starts, page_size=pages.block, causal=True,
        )  # fmt: skip
        same = {"softmax_scale": pages.scale, "causal": True, "scheduler_metadata": ahead}
        if home == FA3_HOMES[0]:
            return lambda q, k, v: _first(
                module.flash_attn_with_kvcache(
                    q, k, v, cache_seqlens=pages.lens, page_table=pages.tables,
                    cu_seqlens_q=pages.starts, max_seqlen_q=pages.new, **same,
                )
            )  # fmt: skip
        return lambda q, k, v: _first(
            module.flash_attn_varlen_func(
                q, k, v, pages.new, pages.starts, pages.length, seqused_k=pages.lens,
                block_table=pages.tables, fa_version=3, **same,
            )
        )  # fmt: skip

    return make


def _first(result: Any) -> Tensor:
    """The output; some versions give the log of the softmax's sum with it."""
    out: Tensor = result[0] if isinstance(result, tuple) else result
    return out


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a package without this part
        return False


def _version(package: str) -> str:
    try:
        return str(getattr(importlib.import_module(package), "__version__", "?"))
    except ImportError:
        return "?"
