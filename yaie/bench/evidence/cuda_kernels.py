"""The CUDA kernels of labs 13 and 14 beside their naive siblings, for the chapters of these labs.

    python -m yaie.bench.evidence.cuda_kernels

Takes a minute, on a GPU that does nothing else, nvcc included. Each number is the median of seven runs
of a CUDA graph that calls the kernel on several sets of tensors, so that the L2 cache does not help.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from solutions.cuda_memory_ops import MemoryKernels
from solutions.cuda_memory_ops.naive import NaiveMemoryKernels
from solutions.cuda_ops import LayerKernels
from solutions.cuda_ops.naive import NaiveLayerKernels
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.timing import elapsed
from yaie.bench.report import save

OUT = EVIDENCE / "cuda_kernels.json"
RUNS = 7
Calls = Sequence[Callable[[], object]]


def main() -> None:
    figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.cuda_kernels"}
    for section in (ceiling, memory, widths, launches, bus, layers, decode):
        figures[section.__name__] = section()
        print(section.__name__, figures[section.__name__], flush=True)
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), figures)


def median_us(calls: Calls) -> float:
    """Microseconds of one of these calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Results are kept, so that each call has memory of its own to write to.
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in calls]
    times = [elapsed(graph.replay) / len(calls) * 1e3 for _ in range(RUNS + 2)]
    del kept
    return statistics.median(times[2:])


def rated(calls: Calls, moved: int) -> dict[str, float]:
    us = median_us(calls)
    return {"us": us, "gbs": moved / us / 1e3}


def half(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def ceiling() -> dict[str, float]:
    """PyTorch's copy of 512 MiB. Not in a graph: there the copy engine would do it, and slower."""
    a, b = (torch.zeros(2**29, dtype=torch.uint8, device="cuda") for _ in range(2))
    times = [elapsed(lambda: b.copy_(a)) * 1e3 for _ in range(RUNS + 2)]
    us = statistics.median(times[2:])
    return {"us": us, "gbs": 2 * a.numel() / us / 1e3}


def stores(kernels: Any, tokens: int, sets: int) -> Calls:
    """8 key heads of 128, as views of a product for 32 query heads; slots in no order."""
    pool = [half(2 * tokens // 16 + 1, 16, 8, 128) for _ in range(2)]
    slots = torch.randperm(2 * tokens, device="cuda")[:tokens]
    products = [half(tokens, 48, 128) for _ in range(sets)]
    return [partial(kernels.store_kv, x[:, 32:40], x[:, 40:], *pool, slots) for x in products]


def memory() -> dict[str, Any]:
    """Storing 8,192 tokens, and gathering 4,096 blocks of 32 KiB."""
    found: dict[str, Any] = {}
    blocks = half(8192, 16, 8, 128)
    tables = torch.randperm(8192, device="cuda")[:4096].int().view(16, 256)
    for name, kernels in (("naive", NaiveMemoryKernels()), ("tuned", MemoryKernels())):
        found[f"store_{name}"] = rated(stores(kernels, 8192, 4), 4 * 8192 * 2048)
        calls = [partial(kernels.gather, blocks, tables)] * 2
        found[f"gather_{name}"] = rated(calls, 2 * 4096 * 2**15)
    return found


def widths() -> dict[str, Any]:
    """The gather, of blocks that begin so many bytes past a multiple of 16: how wide it can be."""
    room, kernels = half(8192 * 2**14 + 8), MemoryKernels()
    tables = torch.randperm(8192, device="cuda")[:4096].int().view(16, 256)
    found = {}
    for width, offset in ((16, 0), (8, 4), (4, 2), (2, 1)):
        blocks = room[offset : offset + 8192 * 2**14].view(8192, 16, 8, 128)
        calls = [partial(kernels.gather, blocks, tables)] * 2
        found[str(width)] = rated(calls, 2 * 4096 * 2**15)
    return found


def launches() -> dict[str, float]:
    """One block copied in 64 tensors: in one launch, and in 64; by graph, and launched from Python."""
    tensors, kernels = [half(32, 16, 8, 128) for _ in range(64)], MemoryKernels()
    pairs = torch.tensor([[3, 17]], device="cuda")

    def one() -> None:
        kernels.copy_blocks(tensors, pairs)

    def many() -> None:
        for tensor in tensors:
            kernels.swap_blocks(tensor, tensor, pairs)

    found = {"one_us": median_us([one] * 4), "many_us": median_us([many] * 4)}
    for name, call in (("one", one), ("many", many)):
        torch.cuda.synchronize()
        found[f"{name}_launched_us"] = elapsed(call, 20) * 1e3
    return found


def bus() -> dict[str, Any]:
    """512 blocks of 32 KiB to pinned memory and back, beside the copy engine's own copy."""
    device = half(512, 16, 8, 128)
    host = torch.empty(512, 16, 8, 128, dtype=torch.bfloat16).pin_memory()
    order = torch.randperm(512)
    pairs = torch.stack((order, order.flip(0)), dim=1).cuda()
    found: dict[str, Any] = {}
    size = device.numel() * 2
    for name, kernels in (("naive", NaiveMemoryKernels()), ("tuned", MemoryKernels())):
        out = [partial(kernels.swap_blocks, device, host, pairs)] * 2
        back = [partial(kernels.swap_blocks, host, device, pairs)] * 2
        found[name] = {"out": rated(out, size), "back": rated(back, size)}
    found["copy"] = {
        "out": rated([lambda: host.copy_(device, non_blocking=True)] * 2, size),
        "back": rated([lambda: device.copy_(host, non_blocking=True)] * 2, size),
    }
    return found


def layer_calls(kernels: Any, tokens: int, sets: int) -> dict[str, tuple[Calls, int]]:
    """By operation the calls, and the bytes that one must move: 4,096 wide, 32 + 8 heads of 128."""
    weight = half(4096)
    rows = [(half(tokens, 4096), half(tokens, 4096)) for _ in range(sets)]
    gates = [half(tokens, 2 * 14336) for _ in range(sets)]
    products = [half(tokens, 48, 128) for _ in range(sets)]
    angles = torch.outer(torch.arange(tokens), 500000.0 ** (-torch.arange(64) / 64)).cuda()
    tables = angles.cos(), angles.sin()
    at = torch.arange(tokens, device="cuda")
    pool = [half(2 * tokens // 16 + 1, 16, 8, 128) for _ in range(2)]
    slots = torch.randperm(2 * tokens, device="cuda")[:tokens]
    return {
        "norm": ([partial(kernels.rms_norm, x, weight, 1e-5) for x, _ in rows], tokens * 2**14),
        "add_norm": (
            [partial(kernels.fused_add_rms_norm, x, r, weight, 1e-5) for x, r in rows],
            tokens * 2**15,
        ),
        "silu_mul": ([partial(kernels.silu_mul, x) for x in gates], tokens * 14336 * 6),
        "rope": (
            [partial(kernels.rope, x[:, :32], x[:, 32:40], at, *tables) for x in products],
            tokens * 40 * 512,
        ),
        "rope_store": (
            [
                partial(
                    kernels.rope_and_store,
                    x[:, :32],
                    x[:, 32:40],
                    x[:, 40:],
                    at,
                    *tables,
                    *pool,
                    slots,
                )
                for x in products
            ],
            tokens * 48 * 512,
        ),
    }


def layers(tokens: int = 8192, sets: int = 3) -> dict[str, Any]:
    """The operations of a layer, on 8,192 tokens."""
    found: dict[str, Any] = {}
    for name, kernels in (("naive", NaiveLayerKernels()), ("tuned", LayerKernels())):
        for operation, (calls, moved) in layer_calls(kernels, tokens, sets).items():
            found[f"{operation}_{name}"] = rated(calls, moved)
    return found


def decode() -> dict[str, Any]:
    """The same on 256 tokens."""
    return layers(256, 16)


if __name__ == "__main__":
    main()
