"""What clocks and profilers say about a few kernels; for the chapter on profiling.

    python -m yaie.bench.evidence.profiling               times, and torch.profiler
    python -m yaie.bench.evidence.profiling --once        each kernel twice, for Nsight Compute
    python -m yaie.bench.evidence.profiling --metrics     what Nsight Compute is to be asked for
    python -m yaie.bench.evidence.profiling --ncu FILE    add its answer, as CSV in base units

On a GPU that does nothing else. `ncu` needs permission to read the GPU's counters.
"""

import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.gpu import median_ms
from yaie.bench.evidence.gpu_kernels import (
    eager_norm,
    norm,
    norm_inputs,
    run_copy_strided,
    run_fma_chain,
)
from yaie.bench.report import as_json, save
from yaie.system.files import write_whole

OUT = EVIDENCE / "profiling.json"
CHAIN = 50
ROUNDS = 50
ONCE = ("rows", "columns", "stride 1", "stride 2", "stride 8", "stride 32", "fma 256", "matmul")
"""The kernels of `once`, in order; each stands in Nsight Compute's table twice."""
METRICS = {
    "us": "gpu__time_duration.sum",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "memory_stall": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "registers": "launch__registers_per_thread",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "tensor_instructions": "sm__inst_executed_pipe_tensor.sum",
}
"""What is kept of Nsight Compute's table, by the name that a chapter asks for."""


def main(arguments: list[str]) -> None:
    if arguments == ["--once"]:
        once()
    elif arguments == ["--metrics"]:
        print(",".join(METRICS.values()))
    elif arguments[:1] == ["--ncu"]:
        add_ncu(Path(arguments[1]))
    else:
        figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.profiling"}
        for section in (norms, launches, clocks, profiled):
            figures[section.__name__] = section()
            print(section.__name__, figures[section.__name__], flush=True)
        save(str(OUT), figures)


def norms() -> dict[str, dict[str, float]]:
    """RMSNorm of 8192 x 4096 in bfloat16: one read and one write of x are counted."""
    x, columns, w = norm_inputs()
    out, out_columns = torch.empty_like(x), torch.empty_like(columns)
    variants: dict[str, Callable[[], Any]] = {
        "rows": lambda: norm(x, w, out),
        "columns": lambda: norm(columns, w, out_columns),
        "eager": lambda: eager_norm(x, w),
        "torch": lambda: torch.nn.functional.rms_norm(x, (x.shape[1],), w, 1e-5),
    }
    found = {}
    for name, work in variants.items():
        ms = median_ms(work)
        found[name] = {"us": ms * 1e3, "gbs": 4 * x.numel() / ms / 1e6}
    return found


def launches() -> dict[str, Any]:
    """Microseconds a kernel of a chain of tiny ones: launched one by one, and replayed as a graph."""
    x = torch.zeros(256, device="cuda")

    def chain() -> None:
        for _ in range(CHAIN):
            x.add_(1.0)

    chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    return {
        "kernels": CHAIN,
        "eager": _both_clocks(chain),
        "graph": _both_clocks(graph.replay),
    }


def _both_clocks(work: Callable[[], None]) -> dict[str, float]:
    """Of the whole chain, divided by its kernels: until the host is free, until the device is done."""
    host, device = [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started = time.perf_counter()
        begin.record()
        work()
        end.record()
        host.append((time.perf_counter() - started) * 1e6 / CHAIN)
        torch.cuda.synchronize()
        device.append(begin.elapsed_time(end) * 1e3 / CHAIN)
    return {"host_us": median(host), "device_us": median(device)}


def clocks() -> dict[str, float]:
    """Milliseconds of one product: by a host that does not wait, by one that does, and by events."""
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    found: dict[str, list[float]] = {"not_waiting_ms": [], "waiting_ms": []}
    for _ in range(10):
        torch.cuda.synchronize()
        started = time.perf_counter()
        _ = a @ a
        found["not_waiting_ms"].append((time.perf_counter() - started) * 1e3)
        torch.cuda.synchronize()
        found["waiting_ms"].append((time.perf_counter() - started) * 1e3)
    return {name: median(times) for name, times in found.items()} | {
        "events_ms": median_ms(lambda: a @ a)
    }


def profiled() -> dict[str, dict[str, Any]]:
    """The kernels of one RMSNorm as torch.profiler sees them: in PyTorch's operations, and as one."""
    x, _, w = norm_inputs()
    out = torch.empty_like(x)
    norm(x, w, out)
    return {
        "eager": _kernels_of(lambda: eager_norm(x, w)),
        "triton": _kernels_of(lambda: norm(x, w, out)),
    }


def _kernels_of(work: Callable[[], Any]) -> dict[str, Any]:
    """In the order in which they run. us: of one call."""
    runs = 10
    work()
    # ANCHOR: profiler
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(runs):
            work()
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=12))
    # ANCHOR_END: profiler
    events = [e for e in seen.events() if str(e.device_type).endswith("CUDA")]
    events = [e for e in events if not e.name.startswith(("Activity", "Memcpy", "Memset"))]
    events.sort(key=lambda e: e.time_range.start)
    each = len(events) // runs
    kernels = [
        {
            "name": events[i].name[:120],
            "us": median(e.time_range.elapsed_us() for e in events[i::each]),
        }
        for i in range(each)
    ]
    return {"us": sum(kernel["us"] for kernel in kernels), "kernels": kernels}


def once() -> None:
    """Twice, in fact: the second time everything is compiled and loaded."""
    x, columns, w = norm_inputs()
    n = 2**24
    source, target = torch.ones(n * 32, device="cuda"), torch.empty(n, device="cuda")
    for _ in range(2):
        norm(x, w, torch.empty_like(x))
        norm(columns, w, torch.empty_like(columns))
        for stride in (1, 2, 8, 32):
            run_copy_strided(source, target, stride)
        run_fma_chain(source, target, 256)
        torch.mm(x, x.t())
    torch.cuda.synchronize()


def add_ncu(path: Path) -> None:
    """The metrics of the second round, by kernel, into the recorded file. Units are base units."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith('"')]
    table = [row for row in csv.DictReader(lines) if row.get("ID")]
    found: dict[str, dict[str, Any]] = {}
    for name, row in zip(ONCE, table[len(table) // 2 :], strict=True):
        numbers = {
            short: float(row[metric].replace(",", ""))
            for short, metric in METRICS.items()
            if row.get(metric)
        }
        if "us" in numbers:
            numbers["us"] /= 1e3
        for kind in ("load", "store"):
            if requests := numbers.get(f"{kind}_requests"):
                numbers[f"sectors_per_{kind}"] = numbers[f"{kind}_sectors"] / requests
        found[name.replace(" ", "_")] = {"kernel": row["Kernel Name"], **numbers}
        print(name, found[name.replace(" ", "_")])
    figures = json.loads(OUT.read_text("utf-8"))
    write_whole(OUT, as_json({**figures, "ncu": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
