"""How long a kernel takes, without what starts it.

A kernel of a few microseconds takes less time than Python needs to launch it. So launches are recorded
as a CUDA graph and replayed; what cannot be recorded is launched one after the other between two
events, which says the same of kernels that take longer than a launch. Arguments are used in turn and
results are kept for a while, and neither is then found in the L2 cache.
"""

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from yaie.bench.kernels.case import copies_beyond_l2

SAMPLE_MS = 20.0
SAMPLES = 7
LAUNCHES = 16
MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one run: median, fastest, slowest of `SAMPLES` samples. how: graph or launched."""

    median: float
    low: float
    high: float
    how: str

    def as_json(self) -> dict[str, Any]:
        return {"ms": self.median, "ms_low": self.low, "ms_high": self.high, "how": self.how}


def measure(
    run: Callable[..., Any], sets: Sequence[tuple[Any, ...]], *, capture: bool = True
) -> Timing:
    """Time `run` on the sets in turn."""
    launches = [sets[i % len(sets)] for i in range(max(LAUNCHES, len(sets)))]
    for arguments in sets[:2]:  # compiles, and fills the allocator's cache
        result = run(*arguments)
    num_kept = copies_beyond_l2(_bytes(result))
    del result

    def launch_all() -> None:
        kept: deque[Any] = deque(maxlen=num_kept)
        for arguments in launches:
            kept.append(run(*arguments))

    torch.cuda.synchronize()
    if elapsed(lambda: run(*sets[0])) > SAMPLE_MS / 2:
        launches = launches[:3]
    replay = _recorded(launch_all) if capture else None
    once = replay or launch_all
    once()
    torch.cuda.synchronize()
    rounds = max(1, min(MOST_ROUNDS, int(SAMPLE_MS / max(1e-3, elapsed(once)))))
    samples = [elapsed(once, rounds) / len(launches) for _ in range(SAMPLES)]
    how = "launched" if replay is None else "graph"
    return Timing(statistics.median(samples), min(samples), max(samples), how)


def elapsed(function: Callable[[], Any], rounds: int = 1) -> float:
    """Milliseconds of one of `rounds` calls, on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(rounds):
        function()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / rounds


def _recorded(function: Callable[[], None]) -> Callable[[], None] | None:
    """Replays what `function` launches; None for what waits for the device: it cannot be recorded."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            function()
    except Exception:  # noqa: BLE001, each library refuses in its own way
        torch.cuda.synchronize()
        _recover()
        return None
    return graph.replay


def _recover() -> None:
    """After a recording that failed PyTorch's random numbers wait for its end: record something else."""
    with suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _bytes(result: Any) -> int:
    if isinstance(result, torch.Tensor):
        return result.nbytes
    return sum(map(_bytes, result)) if isinstance(result, tuple | list) else 0
