"""Paged decode of lab 11 beside its naive sibling, by splits and by heads: "Paged attention in Triton".

    python -m yaie.bench.evidence.paged_decode [path]

Takes half a minute, on a GPU that does nothing else. Each number is the median of nine replays of a CUDA
graph that goes through several sets of sequences, so that the L2 cache does not help. bfloat16, heads of
128, blocks of 16 tokens in no order. A rate counts the keys and values of all sequences once.
"""

import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from solutions.triton_paged_attention import PagedAttention
from solutions.triton_paged_attention.configs import Config
from solutions.triton_paged_attention.naive import launch_naive_decode
from solutions.triton_paged_attention.paged_attention import decode
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.timing import elapsed
from yaie.bench.report import save
from yaie.core.batch import AttentionSpec

OUT = EVIDENCE / "paged_decode.json"
RUNS, BLOCK_SIZE, D = 9, 16, 128
SPEC = AttentionSpec(D**-0.5)
SIZES = ((256, 1024, 16), (64, 4096, 32), (32, 4096, 32), (1, 32768, 32), (1, 1024, 16))
Calls = Sequence[Callable[[], object]]


def main() -> None:
    figures: dict[str, Any] = {"command": "python -m yaie.bench.evidence.paged_decode"}
    for section in (sizes, splits, groups, configs, ragged):
        figures[section.__name__] = section()
        print(section.__name__, figures[section.__name__], flush=True)
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), figures)


def median_us(calls: Calls) -> float:
    """Microseconds of one of these calls."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = [elapsed(graph.replay) / len(calls) * 1e3 for _ in range(RUNS + 2)]
    return statistics.median(times[2:])


class Bench:
    """Sequences of `lens` keys, in as many disjoint sets as exceed the L2 cache."""

    def __init__(self, lens: list[int], heads: int, kv_heads: int = 8) -> None:
        self.bytes = sum(lens) * kv_heads * D * 2 * 2
        sets = max(2, min(40, 200_000_000 // self.bytes))
        counts = [-(-length // BLOCK_SIZE) for length in lens] * sets
        shape = (sum(counts), BLOCK_SIZE, kv_heads, D)
        self.keys, self.values = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)
        )
        self.tables = torch.zeros(sets, len(lens), max(counts), device="cuda", dtype=torch.int32)
        order = torch.randperm(sum(counts), device="cuda").int().split(counts)
        for row, blocks in zip(self.tables.flatten(0, 1), order, strict=True):
            row[: len(blocks)] = blocks
        self.lens = torch.tensor(lens, device="cuda", dtype=torch.int32)
        self.q = torch.randn(len(lens), heads, D, device="cuda", dtype=torch.bfloat16)
        self.longest = max(lens)

    def ours(self, splits: int | None = None) -> dict[str, float]:
        part = PagedAttention(splits)
        return self._rated(
            lambda table: part.decode(
                self.q, self.keys, self.values, table, self.lens, SPEC, max_seq_len=self.longest
            )
        )

    def configured(self, config: Config) -> dict[str, float]:
        tensors = (self.q, self.keys, self.values)
        return self._rated(lambda table: decode(*tensors, table, self.lens, SPEC, 1, config))

    def naive(self) -> dict[str, float]:
        return self._rated(
            lambda table: launch_naive_decode(
                self.q, self.keys, self.values, table, self.lens, SPEC
            )
        )

    def _rated(self, call: Callable[[Tensor], object]) -> dict[str, float]:
        us = median_us([functools.partial(call, table) for table in self.tables])
        return {"us": us, "gbs": self.bytes / us / 1e3}


def sizes() -> dict[str, Any]:
    """The naive kernel, the tuned one without splits, and as it is."""
    found = {}
    for n, keys, heads in SIZES:
        bench = Bench([keys] * n, heads)
        found[f"{n}x{keys}"] = {
            "naive": bench.naive(),
            "unsplit": bench.ours(1),
            "tuned": bench.ours(),
            "mb": bench.bytes / 1e6,
        }
    return found


def splits() -> dict[str, Any]:
    """One sequence of 32,768 keys on 8 key heads, in so many parts."""
    bench = Bench([32768], 32)
    return {str(number): bench.ours(number) for number in (1, 2, 4, 8, 16, 32, 64)}


def groups() -> dict[str, Any]:
    """64 sequences of 1,024 keys on 8 key heads, with so many query heads on each."""
    found = {}
    for group in (1, 2, 4, 8, 16):
        bench = Bench([1024] * 64, 8 * group)
        found[str(group)] = {"naive": bench.naive(), "tuned": bench.ours()}
    return found


def configs() -> dict[str, Any]:
    """64 sequences of 4,096 keys, not split: by keys in a tile, warps, and tiles on their way."""
    bench, found = Bench([4096] * 64, 32), {}
    for tile, warps, stages in (
        (64, 4, 3),
        (64, 4, 5),
        (32, 4, 4),
        (32, 2, 4),
        (32, 1, 4),
        (32, 1, 2),
    ):
        found[f"{tile} keys {warps} warps {stages - 1} tiles"] = bench.configured(
            Config(tile, warps, stages)
        )
    return found


def ragged() -> dict[str, Any]:
    """256 sequences of 100 to 2,048 keys: by the number of splits, None being the code's own choice."""
    generator = torch.Generator().manual_seed(0)
    bench = Bench(torch.randint(100, 2049, (256,), generator=generator).tolist(), 16)
    return {str(number): bench.ours(number) for number in (None, 1, 2, 4)}


if __name__ == "__main__":
    main()
