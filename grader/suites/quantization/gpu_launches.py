"""Calls of the kernel as an engine makes them, for `grader/triton_compiler.py` to compile."""

from collections.abc import Callable
from types import ModuleType

import torch

from yaie.core.quantized import Int4Weight


def _products(part: ModuleType) -> None:
    inputs, out = 256, 512
    for size in (32, 128):
        weight = Int4Weight(
            torch.zeros(inputs // 8, out, dtype=torch.int32),
            torch.zeros(inputs // size, out, dtype=torch.float16),
            torch.zeros(inputs // size, out // 8, dtype=torch.int32),
            size,
        )
        for rows in (1, 64):
            for dtype in (torch.bfloat16, torch.float32):
                part.fused_int4().product(torch.zeros(rows, inputs, dtype=dtype), weight)


LAUNCHES: dict[str, Callable[[ModuleType], None]] = {"19.6": _products}
"""Task -> calls that launch its kernels, on the part."""
