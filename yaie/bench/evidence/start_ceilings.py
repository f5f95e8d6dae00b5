"""How fast this machine reads memory and multiplies, for the chapter "The roofline".

    python -m yaie.bench.evidence.start_ceilings

Reads 1 GiB with a sum, in float32, and multiplies square matrices; the best of several runs each,
because a ceiling is what the machine can do, not what it does on average. On a GPU the copy of a large
buffer and bfloat16 products are measured too.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save

OUT = EVIDENCE / "start_ceilings.json"
GIB = 1 << 30
SIZES = (1024, 2048, 3072)
REPEATS = 12


def main() -> None:
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.start_ceilings",
        "workload": f"the best of {REPEATS} runs each; 1 GiB is read; matrices of {SIZES}",
        "cpu": _ceilings(torch.device("cpu"), torch.float32),
    }
    if torch.cuda.is_available():
        figures["gpu"] = _ceilings(torch.device("cuda"), torch.bfloat16)
    save(str(OUT), figures)


def _ceilings(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """GB/s and GFLOP/s of a device, and where the two meet."""
    read = _read_gb_per_second(device)
    gflops = max(_gflops(size, device, dtype) for size in SIZES)
    balance = gflops / read
    itemsize = torch.empty(0, dtype=dtype).element_size()
    figures = {
        "read_gb_per_s": read,
        "gflops": gflops,
        "flops_per_byte": balance,
        # A linear layer does 2 operations a row for each weight of `itemsize` bytes.
        "rows_at_balance": balance * itemsize / 2,
        "bytes_per_weight": itemsize,
    }
    for name, number in figures.items():
        print(f"{device.type} {name}: {number:.1f}", flush=True)
    return figures


def _read_gb_per_second(device: torch.device) -> float:
    """Of a CPU what a sum reads; of a GPU what a copy reads and writes, which is nearer its limit."""
    source = torch.ones(GIB // 4, device=device)
    if device.type == "cuda":
        target = torch.empty_like(source)
        return 2 * GIB / _best(lambda: target.copy_(source), device) / 1e9
    return GIB / _best(source.sum, device) / 1e9


def _gflops(size: int, device: torch.device, dtype: torch.dtype) -> float:
    scale = 4 if device.type == "cuda" else 1
    left, right = (
        torch.randn(scale * size, scale * size, device=device, dtype=dtype) for _ in "lr"
    )
    return 2 * (scale * size) ** 3 / _best(lambda: left @ right, device) / 1e9


def _best(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    main()
