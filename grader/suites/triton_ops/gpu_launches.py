"""Calls of each task's kernels as an engine makes them, for `grader/triton_compiler.py` to compile.

Sizes are those of a small model of today. Nothing runs: what tensors hold does not matter.
"""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float32)
TOKENS, HIDDEN, HEADS, KV_HEADS, DIM, BLOCK = 32, 4096, 32, 8, 128, 16
EPS = 1e-5


def _norm(part: ModuleType) -> None:
    for dtype in DTYPES:
        part.LayerKernels().rms_norm(_rows(HIDDEN, dtype), torch.zeros(HIDDEN, dtype=dtype), EPS)
    q, _, _ = _heads()
    part.LayerKernels().rms_norm(q, torch.zeros(DIM, dtype=q.dtype), EPS)
    wide = _rows(2**15, torch.bfloat16)
    part.LayerKernels().rms_norm(wide, wide[0], EPS)


def _add_norm(part: ModuleType) -> None:
    for width, dtype in (
        (HIDDEN, torch.bfloat16),
        (HIDDEN, torch.float32),
        (2**15, torch.bfloat16),
    ):
        x, weight = _rows(width, dtype), torch.zeros(width, dtype=dtype)
        part.LayerKernels().fused_add_rms_norm(x, x.clone(), weight, EPS)


def _silu(part: ModuleType) -> None:
    for dtype in DTYPES:
        part.LayerKernels().silu_mul(_rows(2 * HIDDEN, dtype))


def _rope(part: ModuleType) -> None:
    for dtype in DTYPES:
        q, k, _ = _heads(dtype)
        part.LayerKernels().rope(q, k, _per_token(), *_angles(DIM))


def _store(part: ModuleType) -> None:
    _, k, v = _heads()
    part.LayerKernels().store_kv(k, v, *_pool(), _per_token())


def _rope_and_store(part: ModuleType) -> None:
    for turned in (DIM, DIM // 4):
        part.LayerKernels().rope_and_store(
            *_heads(), _per_token(), *_angles(turned), *_pool(), _per_token()
        )


def _rows(width: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(TOKENS, width, dtype=dtype)


def _heads(dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """q, k and v, side by side in one product."""
    counts = [HEADS, KV_HEADS, KV_HEADS]
    product = torch.zeros(TOKENS, sum(counts), DIM, dtype=dtype)
    return list(product.split(counts, dim=1))


def _per_token() -> Tensor:
    return torch.zeros(TOKENS, dtype=torch.int64)


def _angles(turned: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(64, turned // 2), torch.zeros(64, turned // 2)


def _pool() -> tuple[Tensor, Tensor]:
    blocks = torch.zeros(8, BLOCK, KV_HEADS, DIM, dtype=torch.bfloat16)
    return blocks, blocks.clone()


LAUNCHES: dict[str, Callable[[ModuleType], None]] = {
    "9.1": _norm,
    "9.2": _add_norm,
    "9.3": _silu,
    "9.4": _rope,
    "9.5": _store,
    "9.6": _rope_and_store,
}
"""Task -> calls that launch its kernels, on the part."""
