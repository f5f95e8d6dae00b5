"""What one GPU does with strides, with warps, with latency and with arithmetic; for "How a GPU works".

    python -m yaie.bench.evidence.gpu

Takes a minute, on a GPU that does nothing else. Times are medians of Triton's `do_bench`, which empties
the L2 cache before each run.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import triton
from triton.testing import do_bench

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.gpu_kernels import chase, copy_resident, run_copy_strided, run_fma_chain
from yaie.bench.report import save

OUT = EVIDENCE / "gpu.json"
STRIDES = (1, 2, 3, 4, 8, 16, 32)
BLOCKS_PER_SM = (1, 2, 4, 8, 16)
BYTES_A_THREAD = (4, 8, 16, 32, 64)
FMAS = (1, 4, 16, 32, 64, 128, 256, 512)
MATMUL_ROWS = (1, 8, 32, 64, 128, 256, 512, 1024, 4096, 8192)
SPANS = {"16 KiB": 2**14, "8 MiB": 2**23, "4 GiB": 2**32}
CHASE_STEPS = 20_000
LINE = 128


def main() -> None:
    sections = (properties, ceilings, strides, residency, latency, roofline)
    figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.gpu"}
    for section in sections:
        figures[section.__name__] = section()
        print(section.__name__, figures[section.__name__], flush=True)
    save(str(OUT), figures)


def median_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of a run."""
    return float(do_bench(work, warmup=20, rep=100, return_mode="median"))


def properties() -> dict[str, Any]:
    """What the driver says of the GPU."""
    p = torch.cuda.get_device_properties(0)
    return {
        "sms": p.multi_processor_count,
        "l2_mib": p.L2_cache_size / 2**20,
        "shared_kib_per_sm": p.shared_memory_per_multiprocessor / 2**10,
        "registers_per_sm": getattr(p, "regs_per_multiprocessor", 65_536),
        "threads_per_sm": p.max_threads_per_multi_processor,
        "memory_gb": p.total_memory / 1e9,
    }


def ceilings() -> dict[str, float]:
    """GB/s of a copy (read and written), TFLOP/s of products of matrices."""
    a, b = (torch.zeros(2**30, dtype=torch.uint8, device="cuda") for _ in range(2))
    half = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    single = torch.randn(8192, 8192, device="cuda")
    flops = 2 * 8192**3
    return {
        "copy_gbs": 2 * a.numel() / median_ms(lambda: b.copy_(a)) / 1e6,
        "bf16_tflops": flops / median_ms(lambda: half @ half) / 1e9,
        "fp32_tflops": flops / median_ms(lambda: single @ single) / 1e9,
    }


def strides() -> dict[str, dict[str, float]]:
    """By stride of the reads, in float32 numbers: useful GB/s, and what that moves in whole sectors."""
    n, found = 2**25, {}
    out = torch.empty(n, device="cuda")
    for stride in STRIDES:
        x = torch.ones(n * stride, device="cuda")
        ms = median_ms(lambda x=x, stride=stride: run_copy_strided(x, out, stride))  # type: ignore[misc]
        assert bool((out == 1).all())
        found[str(stride)] = {
            "useful_gbs": 8 * n / ms / 1e6,
            "moved_gbs": (4 + 4 * min(stride, 8)) * n / ms / 1e6,
        }
    for rates in found.values():
        rates["times_slower"] = found["1"]["useful_gbs"] / rates["useful_gbs"]
    return found


def residency() -> dict[str, dict[str, float]]:
    """GB/s of a copy by what is on its way: bytes in one SM at a time, in blocks of 4 warps."""
    n = 2**28
    x, out = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def gbs(blocks: int, bytes_a_thread: int) -> dict[str, float]:
        tile = 128 * bytes_a_thread // 4
        ms = median_ms(
            lambda: copy_resident[(sms * blocks,)](x, out, n // tile, BLOCK=tile, num_warps=4)
        )
        on_its_way = blocks * 128 * bytes_a_thread
        return {"warps": 4 * blocks, "bytes_on_the_way": on_its_way, "gbs": 8 * n / ms / 1e6}

    by_blocks = {f"{4 * b} warps": gbs(b, 16) for b in BLOCKS_PER_SM}
    return by_blocks | {f"{size} bytes a thread": gbs(4, size) for size in BYTES_A_THREAD}


def latency() -> dict[str, float]:
    """Nanoseconds of one load, by the size of what is walked through at random: L1, L2, memory."""
    return {name: _latency_ns(span) for name, span in SPANS.items()}


def _latency_ns(span: int) -> float:
    """A walk from line to line, 128 bytes each. What is larger than the L2 is walked through cold."""
    count = min(span // LINE, 2**21)
    places = torch.randperm(count, device="cuda") * (span // LINE // count) * (LINE // 4)
    places = places.roll(-int((places == 0).nonzero()))  # the walk begins at 0
    following = torch.zeros(span // 4, dtype=torch.int32, device="cuda")
    following[places] = places.roll(-1).int()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    flush = torch.zeros(2**28 if span > 2**26 else 1, device="cuda")

    def walk(steps: int) -> float:
        times = []
        for _ in range(5):
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            chase[(1,)](following, out, steps, num_warps=1)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return median(times)

    # Two lengths: what starting a kernel takes is in both.
    walked = walk(2 * CHASE_STEPS) - walk(CHASE_STEPS)
    assert int(out) == int(places[(CHASE_STEPS + 1) % count])
    return walked * 1e6 / CHASE_STEPS


def roofline() -> dict[str, dict[str, dict[str, float]]]:
    """TFLOP/s and GB/s by intensity: float32 arithmetic on numbers as they pass, and linear layers."""
    n, k = 2**26, 8192
    x, out = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
    chains, layers = {}, {}
    for steps in FMAS:
        ms = median_ms(lambda steps=steps: run_fma_chain(x, out, steps))  # type: ignore[misc]
        chains[str(steps)] = _rates(2 * steps * n, 8 * n, ms)
    weight = torch.randn(k, k, dtype=torch.bfloat16, device="cuda")
    for rows in MATMUL_ROWS:
        a = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        ms = median_ms(lambda a=a: a @ weight)  # type: ignore[misc]
        layers[str(rows)] = _rates(2 * rows * k * k, 2 * (2 * rows * k + k * k), ms)
    return {"fma": chains, "linear": layers}


def _rates(flops: float, moved: float, ms: float) -> dict[str, float]:
    return {
        "flops_per_byte": flops / moved,
        "tflops": flops / ms / 1e9,
        "gbs": moved / ms / 1e6,
    }


if __name__ == "__main__":
    print("triton", triton.__version__)
    main()
