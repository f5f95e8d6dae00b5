"""Attention with its scores in memory, the naive kernel and the tuned one: "FlashAttention" and the lab.

    python -m yaie.bench.evidence.flash_attention [path]

Takes half a minute, on a GPU that does nothing else. bfloat16, one sequence, 32 heads of 128, causal, if
nothing else is said. Times are medians; a rate counts two products of half of all pairs of query and key
(five in a backward pass), whatever a kernel computes.
"""

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from solutions.triton_flash_attention import FlashAttention
from solutions.triton_flash_attention.flash_attention import make_call
from solutions.triton_flash_attention.forward import forward_kernel
from solutions.triton_flash_attention.launch import Tiles
from solutions.triton_flash_attention.naive import naive_forward
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save

OUT = EVIDENCE / "flash_attention.json"
RUNS, HEADS, DIM = 9, 32, 128
SCALE = DIM**-0.5
TILES = (
    (128, 128, 8, 2),
    (128, 128, 8, 3),
    (128, 64, 8, 3),
    (128, 64, 4, 3),
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (32, 32, 4, 3),
)


def main() -> None:
    figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.flash_attention"}
    for section in (lengths, tiles, masks, backward):
        figures[section.__name__] = section()
        print(section.__name__, figures[section.__name__], flush=True)
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), figures)


def make(length: int, kv_heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, length, heads, 128] in bfloat16."""
    torch.manual_seed(0)
    shapes = (HEADS, kv_heads, kv_heads)
    q, k, v = (
        torch.randn(1, length, heads, DIM, device="cuda", dtype=torch.bfloat16) for heads in shapes
    )
    return q, k, v


def flops(length: int) -> float:
    return 4 * HEADS * DIM * length * length / 2


def median_ms(call: Callable[[], object]) -> float:
    for _ in range(2):
        call()
    times = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def rated(call: Callable[[], object], work: float) -> dict[str, float]:
    ms = median_ms(call)
    return {"ms": ms, "tflops": work / ms / 1e9}


def with_scores(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """As the formula reads: [heads, length, length] scores, then weights, in memory."""
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    scores = (q * SCALE @ k.transpose(1, 2)).masked_fill_(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def lengths() -> dict[str, Any]:
    """By length: scores in memory, the naive kernel, ours; and the memory that each takes."""
    found = {}
    for length in (512, 1024, 2048, 4096, 8192, 16384):
        q, k, v = make(length)
        hidden = torch.ones(length, length, dtype=torch.bool, device="cuda").triu_(1)
        runs: dict[str, Callable[[], object]] = {
            "scores": partial(with_scores, q, k, v, hidden),
            "naive": partial(naive_forward, q, k, v, SCALE),
            "ours": partial(FlashAttention().forward, q, k, v, scale=SCALE),
        }
        row: dict[str, Any] = {}
        for name, run in runs.items():
            row[name] = rated(run, flops(length))
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run()
            row[name]["mb"] = (torch.cuda.max_memory_allocated() - before) / 1e6
        found[str(length)] = row
    return found


def tiles() -> dict[str, Any]:
    """The forward kernel at 8,192 tokens: by queries and keys of a tile, warps and stages."""
    q, k, v = make(8192)
    out, lse = FlashAttention().forward(q, k, v, scale=SCALE)
    call = make_call(q, k, v, SCALE, True, None, None, 128)
    found = {}
    for sizes in TILES:
        chosen = Tiles(*sizes)

        def run(chosen: Tiles = chosen) -> None:
            grid = (8192 // chosen.queries, HEADS, 1)
            forward_kernel[grid](
                q, k, v, out, lse, q_strides=q.stride()[:3], k_strides=k.stride()[:3],
                v_strides=v.stride()[:3], out_strides=out.stride()[:3], **call.arguments(chosen),
            )  # fmt: skip

        found[" ".join(map(str, sizes))] = rated(run, flops(8192))
    return found


def masks() -> dict[str, Any]:
    """16,384 tokens with 8 key heads: what a window and a block mask leave of the time."""
    q, k, v = make(16384, 8)
    blocks = 16384 // 128
    torch.manual_seed(0)
    half = torch.rand(blocks, blocks, device="cuda") < 0.5
    kinds: dict[str, dict[str, Any]] = {
        "full": {"causal": False},
        "causal": {},
        "window 4096": {"window": 4096},
        "window 1024": {"window": 1024},
        "half of the blocks": {"block_mask": half},
    }
    kernels = FlashAttention()
    return {
        name: {"ms": median_ms(partial(kernels.forward, q, k, v, scale=SCALE, **kw))}
        for name, kw in kinds.items()
    }


def backward() -> dict[str, Any]:
    """The three launches of a backward pass at 8,192 tokens, and all of it."""
    q, k, v = make(8192)
    kernels = FlashAttention()
    out, lse = kernels.forward(q, k, v, scale=SCALE)
    grad = torch.randn_like(out)
    delta = kernels.delta(grad, out)
    call = make_call(q, k, v, SCALE, True, None, None, 128)
    inputs = (grad, q, k, v, lse, delta)
    return {
        "delta": {"ms": median_ms(lambda: kernels.delta(grad, out))},
        "keys": {"ms": median_ms(lambda: kernels.backward_keys(call, *inputs))},
        "queries": {"ms": median_ms(lambda: kernels.backward_queries(call, *inputs))},
        "all": rated(
            lambda: kernels.backward(grad, q, k, v, out, lse, scale=SCALE), 2.5 * flops(8192)
        ),
    }


if __name__ == "__main__":
    main()
