"""What the kernels of labs 15 and 16 ask of memory, counted by the runtime that runs them on a CPU.

    python -m yaie.bench.evidence.cuda_attention_counts

For "FlashAttention in CUDA" and "Paged attention in CUDA". Counts, so they come out the same anywhere.
"""

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solutions.cuda_flash_attention import FlashAttention
from solutions.cuda_flash_attention import flash_attention as flash
from solutions.cuda_paged_attention import PagedAttention, PrefixKernel, Split
from solutions.cuda_paged_attention import paged_attention as paged
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.batch import AttentionSpec
from yaie.cuda.library import CudaLibrary
from yaie.cuda.on_cpu import Launch, recording

OUT = EVIDENCE / "cuda_attention_counts.json"
PADDING = "PAD = 4;"
KEYS, DIM = 128, 64


def main() -> None:
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.cuda_attention_counts",
        "tiles": tiles(),
        "padding": {str(pad): shared_passes(pad) for pad in (0, 4, 8)},
        "decode": {str(group): decode(group) for group in (1, 4)},
        "prefix": prefix(),
    }
    print(figures)
    save(str(OUT), figures)


def launch_of(call: Callable[[], object]) -> Launch:
    with recording() as launches:
        call()
    return launches[0]


def attention_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """64 queries on 64 keys, one head of 128, float32."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 64, 1, 128, generator=generator) for _ in range(3))
    return q, k, v


def tiles() -> dict[str, int]:
    """Bytes that all threads ask of global memory, by the naive kernel and by the tiled one."""
    q, k, v = attention_inputs()
    found = {"queries": 64, "keys": 64, "input_bytes": 3 * q.numel() * 4}
    for name, run in (("naive", flash.naive_forward), ("tiled", FlashAttention().forward)):
        launch = launch_of(partial(run, q, k, v, scale=0.1, causal=False))
        found[f"{name}_bytes"] = launch.global_loads.bytes
        found[f"{name}_shared_bytes"] = launch.shared_loads.bytes
        found[f"{name}_barriers"] = launch.barriers
    found["products"] = 2 * 64 * 64 * 128
    found["shared_loads"] = launch.shared_loads.count
    return found


def shared_passes(pad: int) -> dict[str, int]:
    """Requests to shared memory by warps, and extra passes, with so many floats behind each row."""
    source = Path(flash.__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / source.name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        header = folder / "tiles.cuh"
        text = header.read_text("utf-8")
        assert text.count(PADDING) == 1
        header.write_text(text.replace(PADDING, f"PAD = {pad};"), "utf-8")
        library, flash.LIBRARY = flash.LIBRARY, CudaLibrary(folder)
        try:
            q, k, v = attention_inputs()
            run = FlashAttention().forward
            loads = launch_of(lambda: run(q, k, v, scale=0.1, causal=False)).shared_loads
        finally:
            flash.LIBRARY = library
    return {"requests": loads.requests, "extra_passes": loads.extra_passes}


def decode(group: int) -> dict[str, int]:
    """A decode over 128 keys of one key head of 64 in bfloat16, with `group` query heads on it."""
    keys, values = (torch.randn(KEYS // 16, 16, 1, DIM).bfloat16() for _ in range(2))
    table = torch.randperm(KEYS // 16).int()[None]
    lens, q = torch.tensor([KEYS], dtype=torch.int32), torch.randn(1, group, DIM).bfloat16()
    spec = AttentionSpec(DIM**-0.5)
    naive = launch_of(lambda: paged.naive_decode(q, keys, values, table, lens, spec)).global_loads
    run = PagedAttention().decode_parts
    tuned = launch_of(lambda: run(q, keys, values, table, lens, spec, Split(1, 256))).global_loads
    return {
        "stored_bytes": 2 * KEYS * DIM * 2,
        "naive_bytes": naive.bytes,
        "naive_count": naive.count,
        "tuned_bytes": tuned.bytes,
        "tuned_count": tuned.count,
    }


def prefix() -> dict[str, int]:
    """Bytes read of a row of 1,024 that differs at entry 3, at entry 700, and nowhere."""
    tokens = torch.arange(1024, dtype=torch.int32)
    lens = torch.tensor([1024], dtype=torch.int32)
    run, found = PrefixKernel().longest_common_prefix, {}
    for place in (3, 700, 1024):
        row = tokens.clone()
        row[place : place + 1] = -1
        launch = launch_of(partial(run, tokens, row[None], lens))
        found[str(place)] = launch.global_loads.bytes
    return found


if __name__ == "__main__":
    main()
