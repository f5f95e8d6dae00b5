"""What the kernels of labs 13 and 14 ask of memory, counted by the runtime that runs them on a CPU.

    python -m yaie.bench.evidence.cuda_counts

For "CUDA kernels" and "CUDA reductions". Counts, so they come out the same anywhere.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from solutions.cuda_memory_ops import MemoryKernels
from solutions.cuda_memory_ops.naive import NaiveMemoryKernels
from solutions.cuda_ops import LayerKernels
from solutions.cuda_ops.naive import NaiveLayerKernels
from solutions.cuda_ops.sums import block_sums
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.cuda.on_cpu import Launch, recording

OUT = EVIDENCE / "cuda_counts.json"


def main() -> None:
    figures = {
        "command": "python -m yaie.bench.evidence.cuda_counts",
        "store": by_kernels(MemoryKernels(), NaiveMemoryKernels(), store),
        "norm": by_kernels(LayerKernels(), NaiveLayerKernels(), norm),
        "sums": sums(),
    }
    print(figures)
    save(str(OUT), figures)


def launch_of(call: Callable[[], object]) -> Launch:
    with recording() as launches:
        call()
    (launch,) = launches
    return launch


def by_kernels(tuned: Any, naive: Any, call: Callable[[Any], object]) -> dict[str, Any]:
    return {
        name: counts(launch_of(partial(call, kernels)))
        for name, kernels in (("tuned", tuned), ("naive", naive))
    }


def counts(launch: Launch) -> dict[str, Any]:
    """Of global memory: what threads executed, asked for and moved; and what they waited for."""
    return {
        "threads": launch.threads * launch.blocks,
        **{
            f"{kind}_{name}": getattr(traffic, name)
            for kind, traffic in (("load", launch.global_loads), ("store", launch.global_stores))
            for name in ("count", "bytes", "requests", "sectors", "ideal_sectors", "efficiency")
        },
        "barriers": launch.barriers,
        "collectives": launch.collectives,
    }


def store(kernels: Any) -> None:
    """32 tokens with 2 key heads of 64 in bfloat16: rows of 256 bytes."""
    k, v = torch.randn(32, 6, 64).bfloat16()[:, 2:].unflatten(1, (2, 2)).unbind(1)
    pool = torch.zeros(2, 4, 16, 2, 64, dtype=torch.bfloat16)
    kernels.store_kv(k, v, *pool, torch.randperm(64)[:32])


def norm(kernels: Any) -> None:
    """32 rows of 512 in bfloat16: 1,024 bytes each."""
    kernels.rms_norm(torch.randn(32, 512).bfloat16(), torch.ones(512).bfloat16(), 1e-5)


def sums() -> dict[str, Any]:
    """Two sums over a block of 256 threads, one after the other."""
    launch = launch_of(lambda: block_sums(torch.randn(1, 256)))
    return {
        "barriers": launch.barriers,
        "exchanges_of_a_warp": launch.collectives // 8,
        "shared_bytes": launch.shared_stores.bytes,
    }


if __name__ == "__main__":
    main()
