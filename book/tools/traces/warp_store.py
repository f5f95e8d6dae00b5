"""A warp that stores keys and values, request by request: a thread for each row, and lab 13's way."""

from importlib import import_module
from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._warp import global_step, kept, launch_of, total

LAB = "cuda_memory_ops"
TOKENS, ROW = 32, 128
SLOTS = [(11 * token + 5) % 64 for token in range(TOKENS)]
FEW = 6


def record(part: Part) -> Trace:
    """Two tracks, of the first requests of one warp: a load, the store that follows it, and so on."""
    package = part(LAB)
    naive = import_module(f"{package.__name__}.naive").NaiveMemoryKernels()
    kernels = {
        "naive": ("a thread for each row", naive),
        "tuned": ("store_kv of lab 13", package.MemoryKernels()),
    }
    return {
        "tracks_label": "Kernel",
        "tracks": {
            key: {"label": label, "memory": "global", "steps": _steps(kernel)}
            for key, (label, kernel) in kernels.items()
        },
    }


def _steps(kernels: Any) -> list[dict[str, Any]]:
    import torch

    rows = torch.arange(TOKENS * ROW).view(TOKENS, 1, ROW).bfloat16()
    pools = [torch.zeros(16, 4, 1, ROW, dtype=torch.bfloat16) for _ in range(2)]
    slots = torch.tensor(SLOTS)
    launch = launch_of(lambda: kernels.store_kv(rows, rows.clone(), *pools, slots))
    loads, stores = kept(launch, "global load"), kept(launch, "global store")
    steps = []
    for number, (load, store) in enumerate(zip(loads[:FEW], stores[:FEW], strict=False), 1):
        steps += [global_step("load", number, *load), global_step("store", number, *store)]
    if steps:
        steps[-1]["say"] += total([launch.global_loads, launch.global_stores])
    return steps
