"""The CUDA kernels of labs 15 and 16 beside their naive siblings, for the chapters of these labs.

    python -m yaie.bench.evidence.cuda_attention

Takes a minute, on a GPU that does nothing else, nvcc included. Medians of seven runs; decodes are
captured in a CUDA graph that goes over more keys than the L2 cache holds.
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.cuda_flash_attention import FlashAttention
from solutions.cuda_flash_attention import flash_attention as flash
from solutions.cuda_paged_attention import PagedAttention, PrefixKernel, Split
from solutions.cuda_paged_attention import paged_attention as paged
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.timing import elapsed
from yaie.bench.report import save
from yaie.core.batch import AttentionSpec
from yaie.cuda.library import CudaLibrary

OUT = EVIDENCE / "cuda_attention.json"
RUNS, HEADS, KV_HEADS, DIM = 7, 32, 8, 128
PADDING = "PAD = 4;"
Calls = Sequence[Callable[[], object]]


def main() -> None:
    figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.cuda_attention"}
    for section in (ceilings, forward, backward, decode, parts, prefix):
        figures[section.__name__] = section()
        print(section.__name__, figures[section.__name__], flush=True)
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), figures)


def median_ms(calls: Calls, *, graph: bool = False) -> float:
    """Milliseconds of one of these calls."""
    run: Callable[[], object] = _captured(calls) if graph else lambda: [call() for call in calls]
    run()
    return statistics.median(elapsed(run) / len(calls) for _ in range(RUNS))


def _captured(calls: Calls) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph.replay


def half(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def ceilings() -> dict[str, float]:
    """A copy in GB/s; products of 8,192 x 8,192 in TFLOP/s, float32 on CUDA cores and bfloat16."""
    a, b = (torch.zeros(2**29, dtype=torch.uint8, device="cuda") for _ in range(2))
    found = {"copy_gbs": 2 * a.numel() / median_ms([lambda: b.copy_(a)]) / 1e6}
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        x = torch.randn(8192, 8192, device="cuda").to(dtype)
        found[f"{name}_tflops"] = 2 * 8192**3 / median_ms([partial(torch.mm, x, x)]) / 1e9
    return found


def inputs(tokens: int, dim: int = DIM) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((HEADS, dim), (KV_HEADS, dim), (KV_HEADS, dim))
    q, k, v = (half(1, tokens, *shape) for shape in shapes)
    return q, k, v


def rate(tokens: int, ms: float, times: float = 1.0, dim: int = DIM) -> dict[str, float]:
    """times: of the two products of a causal forward pass."""
    return {"ms": ms, "tflops": times * 2 * tokens**2 * HEADS * dim / ms / 1e9}


def forward() -> dict[str, Any]:
    """Causal, 32 heads on 8 of 128: the tiled kernel, the naive one, one without padding, PyTorch's."""
    found: dict[str, Any] = {}
    for tokens in (1024, 8192):
        q, k, v = inputs(tokens)
        found[f"tiled_{tokens}"] = rate(tokens, tiled(q, k, v))
        found[f"unpadded_{tokens}"] = rate(tokens, unpadded(q, k, v))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    attend = F.scaled_dot_product_attention
    ms = median_ms([lambda: attend(q, k, v, is_causal=True, enable_gqa=True)])
    found["torch_8192"] = rate(8192, ms)
    q, k, v = inputs(1024)
    found["naive_1024"] = rate(1024, median_ms([lambda: flash.naive_forward(q, k, v, scale=0.09)]))
    return found


def tiled(q: Tensor, k: Tensor, v: Tensor) -> float:
    return median_ms([lambda: FlashAttention().forward(q, k, v, scale=0.09)])


def unpadded(q: Tensor, k: Tensor, v: Tensor) -> float:
    """The forward pass whose tiles have no floats to spare behind their rows."""
    source = Path(flash.__file__).parent
    folder = Path(tempfile.mkdtemp()) / source.name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "backward_*.cu"))
    header = folder / "tiles.cuh"
    text = header.read_text("utf-8")
    assert text.count(PADDING) == 1
    header.write_text(text.replace(PADDING, "PAD = 0;"), "utf-8")
    library, flash.LIBRARY = flash.LIBRARY, CudaLibrary(folder)
    try:
        return tiled(q, k, v)
    finally:
        flash.LIBRARY = library


def backward() -> dict[str, float]:
    """Five products where forward has two."""
    q, k, v = inputs(8192)
    kernels, grad = FlashAttention(), half(1, 8192, HEADS, DIM)
    out, lse = kernels.forward(q, k, v, scale=0.09)
    ms = median_ms([lambda: kernels.backward(grad, q, k, v, out, lse, scale=0.09)])
    return rate(8192, ms, times=2.5)


def pools(n: int, keys: int, kv_heads: int, copies: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Keys, values, and `copies` tables [n, keys / 16] over different blocks."""
    count = n * keys // 16
    order = torch.randperm(copies * count, device="cuda").int()
    blocks = [half(copies * count, 16, kv_heads, DIM) for _ in range(2)]
    return blocks[0], blocks[1], list(order.view(copies, n, keys // 16))


def decoding(
    n: int, keys: int, heads: int, kv_heads: int, split: Split | None = None, naive: bool = False
) -> dict[str, float]:
    moved = n * keys * kv_heads * DIM * 4
    key_blocks, value_blocks, tables = pools(n, keys, kv_heads, max(1, 400_000_000 // moved))
    lens = torch.full((n,), keys, dtype=torch.int32, device="cuda")
    q, spec, kernels = half(n, heads, DIM), AttentionSpec(DIM**-0.5), PagedAttention()

    def one(table: Tensor) -> object:
        if naive:
            return paged.naive_decode(q, key_blocks, value_blocks, table, lens, spec)
        if split is None:
            return kernels.decode(q, key_blocks, value_blocks, table, lens, spec, max_seq_len=keys)
        made = kernels.decode_parts(q, key_blocks, value_blocks, table, lens, spec, split)
        return kernels.combine(made, lens, spec, q.dtype)

    ms = median_ms([partial(one, table) for table in tables], graph=True)
    return {"us": ms * 1e3, "gbs": moved / ms / 1e6}


SIZES = {
    "256 x 1024": (256, 1024, 16, 8),
    "64 x 4096": (64, 4096, 32, 8),
    "32 x 4096": (32, 4096, 32, 8),
    "1 x 32768": (1, 32768, 32, 8),
    "1 x 1024": (1, 1024, 16, 8),
}


def decode() -> dict[str, Any]:
    """By the issue's sizes: sequences x keys; the naive kernel where it ends soon."""
    found: dict[str, Any] = {}
    for name, size in SIZES.items():
        found[name] = {"tuned": decoding(*size)}
        if size[0] in (1, 32):
            found[name]["naive"] = decoding(*size, naive=True)
        torch.cuda.empty_cache()
    return found


def parts() -> dict[str, Any]:
    """One sequence of 32,768 keys, 32 heads on 8, cut into so many parts."""
    return {
        str(count): decoding(1, 32768, 32, 8, Split(count, -(-32768 // count)))
        for count in (8, 16, 32, 64, 128)
    }


def prefix() -> dict[str, float]:
    """10,000 rows of 4,096 tokens, all equal to what they are compared with."""
    tokens = torch.randint(0, 50_000, (4096,), dtype=torch.int32, device="cuda")
    rows, lens = tokens.repeat(10_000, 1), torch.full((10_000,), 4096, dtype=torch.int32).cuda()
    ms = median_ms([lambda: PrefixKernel().longest_common_prefix(tokens, rows, lens)], graph=True)
    return {"us": ms * 1e3, "gbs": rows.numel() * 4 / ms / 1e6}


if __name__ == "__main__":
    main()
