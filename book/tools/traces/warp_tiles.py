"""A warp and the banks of shared memory: the products of lab 15's forward pass, line by line."""

from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._warp import kept, launch_of, lowest, shared_step
from yaie.cuda.on_cpu.launches import Request

LAB = "cuda_flash_attention"
TOKENS, DIM = 64, 32
LINES = 6


def record(part: Part) -> Trace:
    """First a store of a tile, then a load of each line that reads shared memory."""
    import torch

    flash = part(LAB).FlashAttention()
    q, k, v = (torch.arange(TOKENS * DIM).view(1, TOKENS, 1, DIM) / 1e4 for _ in range(3))
    launch = launch_of(lambda: flash.forward(q, k, v, scale=1.0, causal=False))
    steps: list[dict[str, Any]] = [
        shared_step("store", *request) for request in kept(launch, "shared store")[:1]
    ]
    # Of each line the request with the lowest addresses: how often a loop is unrolled changes nothing.
    first: dict[int, Request] = {}
    for line, request in launch.requests_of("shared load"):
        if line not in first or lowest(request) < lowest(first[line]):
            first[line] = request
    lines = [
        line.line for line in launch.lines if line.kind == "shared load" and line.line in first
    ]
    steps += [shared_step("load", line, first[line]) for line in sorted(lines)[:LINES]]
    extra = launch.bank_conflicts
    told = f"{extra:,} passes more than" if extra else "no pass more than"
    if steps:
        steps[-1]["say"] += f" The whole launch takes {told} the widths need."
    return {"memory": "shared", "steps": steps}
