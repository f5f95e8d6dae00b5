"""What a sum over the GPUs of one host takes, by rows: the engine's kernel, PyTorch's, and NCCL.

    python -m yaie.bench.evidence.gpu_ranks [path]

A minute, on GPUs that do nothing else. As in a decode step, calls stand in a CUDA graph; a launch from
Python would take longer than they do. A rank's time is that of a replay by calls in it; the slowest
rank's counts.
"""

import argparse
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.worker.parallel.groups import LibraryCollectives, Limit, nccl_group
from yaie.worker.parallel.peer_memory import FEW_BYTES, MOST_BYTES, PeerCollectives, open_memory

OUT = EVIDENCE / "gpu_ranks.json"
WIDTH = 4096
ROWS = (1, 2, 8, 32, 64, 128, 256, 1024)
CALLS = 64
REPLAYS = 21


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", default=str(OUT))
    path = parser.parse_args().path
    size = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (size, f"{folder}/store", path), nprocs=size)


def _rank(rank: int, size: int, file: str, path: str) -> None:
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    store = dist.FileStore(file, size)
    library = LibraryCollectives(nccl_group(dist.PrefixStore("nccl", store), rank, size), Limit())
    peers = PeerCollectives(library, dist.PrefixStore("peers", store), device)
    torchs = _torchs(dist.PrefixStore("torch", store), rank, size, device)
    figures: dict[str, Any] = {}
    for rows in ROWS:
        ways: dict[str, Callable[[Tensor], Any]] = {"nccl": library.all_reduce}
        num_bytes = rows * WIDTH * torch.bfloat16.itemsize
        if num_bytes <= FEW_BYTES:
            ways["yaie_one_shot"] = peers.one_shot
        if num_bytes <= MOST_BYTES:
            ways |= {"yaie": peers.all_reduce, "yaie_two_shot": peers.two_shot, **torchs}
        figures[str(rows)] = {
            name: _microseconds(call, rows, device, library) for name, call in ways.items()
        }
    if rank == 0:
        properties = torch.cuda.get_device_properties(0)
        save(
            path,
            {
                "command": "python -m yaie.bench.evidence.gpu_ranks",
                "gpus": f"{size} x {properties.name}",
                "what": f"microseconds of an all-reduce of [rows, {WIDTH}] bfloat16 within a graph of "
                f"{CALLS}: median, least and most of {REPLAYS} replays on the slowest rank",
                "rows": figures,
            },
        )


def _torchs(store: Any, rank: int, size: int, device: Any) -> dict[str, Callable[[Tensor], Any]]:
    """PyTorch's own kernels over symmetric memory, by name."""
    import torch.distributed._symmetric_memory as symmetric

    name, buffer, _ = open_memory(store, rank, size, (MOST_BYTES // 2,), torch.bfloat16, device)
    assert symmetric is not None  # registers the operations
    ops = torch.ops.symm_mem
    return {
        "one_shot": lambda x: ops.one_shot_all_reduce(buffer[: x.numel()], "sum", name),
        "two_shot": lambda x: ops.two_shot_all_reduce_(buffer[: x.numel()], "sum", name),
    }


def _microseconds(
    call: Callable[[Tensor], Any], rows: int, device: torch.device, library: LibraryCollectives
) -> list[float]:
    x = torch.zeros(rows, WIDTH, dtype=torch.bfloat16, device=device)
    for _ in range(3):
        call(x)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call(x)
    found = []
    for _ in range(REPLAYS + 2):
        library.all_reduce(torch.zeros(1, device=device))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize(device)
        found.append(1e3 * begin.elapsed_time(end) / CALLS)
    mine = torch.tensor(found[2:], device=device)
    slowest = library.all_gather(mine).amax(0).tolist()
    return [median(slowest), min(slowest), max(slowest)]


if __name__ == "__main__":
    main()
