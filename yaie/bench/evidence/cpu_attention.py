"""How fast a decode step's attention reads keys and values on a CPU, beside a plain read of memory.

    python -m yaie.bench.evidence.cpu_attention [--beside FOLDER] [--threads N] [path]

Takes two minutes. FOLDER: `yaie/backends/cpu/source` of another commit, which is compiled and measured
in turn with this one's, in an order drawn anew for each round.

Keys and values lie in blocks of 16 tokens in no order, in as many pools as exceed the caches; a rate
counts each of them once. Beside it, in the same rounds: a sum over the memory of the pools ("read"), and
the two matrix products of attention without its softmax over tensors in one piece ("products"), by
PyTorch.

With one thread the seconds are the processor's and not the clock's, since other processes then disturb
it less. With more, the machine must do nothing else: threads wait for each other.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from ctypes import byref
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from yaie.backends.cpu.build import build
from yaie.backends.cpu.library import EVERYTHING, Attend, Library, library
from yaie.bench.report import save
from yaie.system.lazy_zeros import zeros

BLOCK_SIZE = 16
BEYOND_CACHES = 96_000_000
"""Bytes that are read before the same ones are read again."""
ROUNDS = 7
ONE, MANY = 1, 8


@dataclass(frozen=True, slots=True)
class Case:
    """requests of `context` keys each; group: query heads of a key head; d: numbers of a head."""

    requests: int
    context: int
    kv_heads: int
    group: int
    d: int


CASES = (
    Case(ONE, 4096, 4, 2, 32),  # the tutor
    Case(ONE, 24576, 4, 2, 32),
    Case(MANY, 4096, 4, 2, 32),
    Case(ONE, 6000, 3, 3, 64),  # SmolLM2-135M
    Case(MANY, 2048, 3, 3, 64),
    Case(ONE, 8192, 8, 1, 64),
    Case(ONE, 8192, 8, 8, 64),
    Case(ONE, 8192, 8, 4, 128),  # Llama 3 8B
    Case(MANY, 2048, 8, 4, 128),
    Case(ONE, 8192, 1, 8, 128),
    Case(ONE, 8192, 4, 2, 256),
    Case(ONE, 4096, 16, 1, 256),
)


class Pools:
    """A case's numbers, several times over; calls go through them in turn."""

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        blocks = case.requests * -(-case.context // BLOCK_SIZE)
        shape = (blocks, BLOCK_SIZE, case.kv_heads, case.d)
        self.case = case
        self.bytes = 2 * case.requests * case.context * case.kv_heads * case.d * dtype.itemsize
        count = max(2, -(-BEYOND_CACHES // self.bytes))
        numbers = torch.randn(2, *shape).to(dtype)
        # As the engine's pool is made, which decides on the size of pages.
        self.pools = [zeros(numbers.shape, dtype, numbers.device) for _ in range(count)]
        for pool in self.pools:
            pool.copy_(numbers)
        self.tables = torch.randperm(blocks).int().view(case.requests, -1)
        self.starts = torch.arange(case.requests + 1).int()
        self.lens = torch.full((case.requests,), case.context).int()
        self.q = torch.randn(case.requests, case.kv_heads * case.group, case.d).to(dtype)
        self.out = torch.empty_like(self.q)

    def attend(self, lib: Library, threads: int) -> Callable[[Tensor], object]:
        """By a library."""
        case, q, out = self.case, self.q, self.out
        plan = lib.make_plan(
            self.starts.data_ptr(), self.lens.data_ptr(), self.tables.data_ptr(),
            self.tables.stride(0), case.requests, BLOCK_SIZE, case.group, True,
        )  # fmt: skip

        def call(pool: Tensor) -> None:
            lib.attend(plan, byref(Attend(
                q.data_ptr(), pool[0].data_ptr(), pool[1].data_ptr(), out.data_ptr(), None,
                *q.stride()[:2], *pool.stride()[1:4], EVERYTHING, case.d**-0.5, 0.0,
                q.shape[1], case.kv_heads, case.d, q.dtype == torch.bfloat16, threads,
            )))  # fmt: skip

        return call

    def multiply(self, pool: Tensor) -> object:
        """Both products, as if keys and values lay in one piece, a head's side by side."""
        case = self.case
        q = self.q.view(-1, case.group, case.d)
        kept = pool.view(2, -1)[:, : q.shape[0] * case.context * case.d]
        keys, values = kept.view(2, q.shape[0], case.context, case.d)
        return torch.bmm(torch.bmm(q, keys.transpose(1, 2)), values)


def measure(case: Case, dtype: torch.dtype, libraries: dict[str, Library], threads: int) -> Any:
    """GB/s of each contestant, by round."""
    pools = Pools(case, dtype)
    calls: dict[str, Callable[[Tensor], object]] = {
        "read": lambda pool: pool.view(torch.float32).sum(),
        "products": pools.multiply,
        **{name: pools.attend(lib, threads) for name, lib in libraries.items()},
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    rng = random.Random(0)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for turn in range(ROUNDS + 1):
        for name in rng.sample(list(calls), len(calls)):
            begin = clock()
            for pool in pools.pools:
                calls[name](pool)
            taken = clock() - begin
            if turn:  # the first one warms up
                rates[name].append(len(pools.pools) * pools.bytes / taken / 1e9)
    return rates


def line(case: Case, dtype: torch.dtype, rates: dict[str, list[float]]) -> str:
    """A row of the table: medians, with the least and the most, and ratios round by round."""

    def spread(values: Sequence[float]) -> str:
        return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"

    def ratio(other: str) -> list[float]:
        return [a / b for a, b in zip(rates["ours"], rates[other], strict=True)]

    name = str(dtype).removeprefix("torch.")
    heads = f"{case.kv_heads:2} x {case.group} of {case.d:3}"
    cells = [f"{name:8} {case.requests} x {case.context:5}, {heads}"]
    cells += [f"{who} {spread(values)}" for who, values in rates.items()]
    cells += [f"/ {other} {spread(ratio(other))}" for other in rates if other != "ours"]
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--beside", type=Path, help="sources of another commit's library")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("path", nargs="?", help="where the figures go, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    libraries = {"ours": library()}
    if given.beside is not None:
        libraries["before"] = Library(build(source=given.beside))
    found = []
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            for case in CASES:
                rates = measure(case, dtype, libraries, given.threads)
                print(line(case, dtype, rates), flush=True)
                found.append({**asdict(case), "dtype": str(dtype), "gbs": rates})
    command = "python -m yaie.bench.evidence.cpu_attention"
    save(given.path, {"command": command, "threads": given.threads, "cases": found})


if __name__ == "__main__":
    main()
