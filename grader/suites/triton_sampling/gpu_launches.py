"""Calls of each task's kernels as an engine makes them, for `grader/triton_compiler.py` to compile.

Nothing runs: what tensors hold does not matter. Tasks 12.2 to 12.4 are functions that given kernels
call. A design without the host functions that launch those is compiled through task 12.5's call.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit.sampling import sampling_batch

ROWS, VOCAB = 4, 32_000
PLAIN: dict[str, Any] = {"temperature": 0.8}
FILTERED: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.05}


def _noise(part: ModuleType) -> None:
    seeds = torch.zeros(ROWS, dtype=torch.int64)
    part.noise.gumbel_noise(seeds, seeds, VOCAB)


def _scan(part: ModuleType) -> Any:
    batch = sampling_batch(ROWS, **PLAIN)
    return part.scan.scan_rows(_logits(), batch) if hasattr(part, "scan") else None


def _top_p(part: ModuleType) -> None:
    if (scan := _scan(part)) is not None and hasattr(part, "draw"):
        batch = sampling_batch(ROWS, temperature=0.8, top_p=0.9)
        part.draw.draw_rows(_logits(), batch, scan, torch.zeros(ROWS))


def _top_k(part: ModuleType) -> None:
    if (scan := _scan(part)) is not None and hasattr(part, "top_k"):
        part.top_k.top_k_bounds(_logits(), sampling_batch(ROWS, **FILTERED), scan)


def _whole(part: ModuleType) -> None:
    for how in (PLAIN, FILTERED):
        part.Sampler().sample(_logits(), sampling_batch(ROWS, **how))


def _logits() -> Tensor:
    return torch.zeros(ROWS, VOCAB)


LAUNCHES: dict[str, Callable[[ModuleType], object]] = {
    "12.1": _noise,
    "12.2": _scan,
    "12.3": _top_p,
    "12.4": _top_k,
    "12.5": _whole,
}
"""Task -> calls that launch its kernels, on the part."""
