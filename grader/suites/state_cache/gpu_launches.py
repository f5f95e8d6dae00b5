"""Calls of the kernel as an engine makes them, for `grader/triton_compiler.py` to compile."""

from collections.abc import Callable
from types import ModuleType

import torch

from yaie.core.contracts.states import StateBatch


def _steps(part: ModuleType) -> None:
    n, heads = 4, 2
    batch = StateBatch(
        [1] * n,
        torch.arange(n + 1, dtype=torch.int32),
        torch.arange(n),
        torch.zeros(n, dtype=torch.bool),
    )
    for dtype in (torch.bfloat16, torch.float32):
        for d_k, d_v, v_heads in ((128, 128, 4), (24, 40, 2)):
            keys = torch.zeros(n, heads, d_k, dtype=dtype)
            values = torch.zeros(n, v_heads, d_v, dtype=dtype)
            gates, pool = torch.zeros(n, v_heads), torch.zeros(n, v_heads, d_k, d_v)
            part.decode_kernel()(values.clone(), keys, keys, values, gates, gates, pool, batch, 8)


LAUNCHES: dict[str, Callable[[ModuleType], None]] = {"22.6": _steps}
"""Task -> calls that launch its kernels, on the part."""
