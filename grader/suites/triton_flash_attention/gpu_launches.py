"""Calls of each task's kernels as an engine makes them, for `grader/triton_compiler.py` to compile.

Nothing runs: what tensors hold does not matter. Each task's calls need as little of the others' as
they can.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

SCALE, TOKENS, HEADS = 0.1, 256, 4


def _forward(part: ModuleType, dim: int = 128, kv_heads: int = HEADS, **how: Any) -> None:
    part.FlashAttention().forward(*_inputs(dim, kv_heads), scale=SCALE, **how)


def _plain(part: ModuleType) -> None:
    _forward(part, causal=False)
    _forward(part, 80, causal=False)
    part.FlashAttention().forward(*_inputs(64, HEADS, torch.float32), scale=SCALE, causal=False)


def _masked(part: ModuleType) -> None:
    _forward(part)
    _forward(part, window=100)


def _grouped(part: ModuleType) -> None:
    _forward(part, kv_heads=1, causal=False)


def _block_sparse(part: ModuleType) -> None:
    _forward(part, causal=False, block_mask=_block_mask(), mask_block=64)


def _backward(part: ModuleType, other: str, nothing: Any) -> None:
    """other: the method that launches the other task's kernel, and gives `nothing` here."""

    class Alone(part.FlashAttention):  # type: ignore[name-defined]
        pass

    if hasattr(Alone, other):  # a design may have another way to share the work
        setattr(Alone, other, lambda self, *args, **kwargs: nothing)
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = _inputs(128, 1, dtype)
        lse = torch.zeros(1, HEADS, TOKENS)
        Alone().backward(q, q, k, v, q, lse, scale=SCALE)
        Alone().backward(q, q, k, v, q, lse, scale=SCALE, window=100)
        if dtype == torch.bfloat16:
            sparse = {"block_mask": _block_mask(), "mask_block": 64}
            Alone().backward(q, q, k, v, q, lse, scale=SCALE, causal=False, **sparse)


def _keys(part: ModuleType) -> None:
    _backward(part, "backward_queries", None)


def _queries(part: ModuleType) -> None:
    _backward(part, "backward_keys", (None, None))


def _inputs(dim: int, kv_heads: int, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """q, k, v of one sequence."""
    return [torch.zeros(1, TOKENS, n, dim, dtype=dtype) for n in (HEADS, kv_heads, kv_heads)]


def _block_mask() -> Tensor:
    return torch.ones(TOKENS // 64, TOKENS // 64, dtype=torch.bool)


LAUNCHES: dict[str, Callable[[ModuleType], None]] = {
    "10.1": _plain,
    "10.2": _masked,
    "10.3": _grouped,
    "10.4": _block_sparse,
    "10.5": _keys,
    "10.6": _queries,
}
"""Task -> calls that launch its kernels, on the part."""
