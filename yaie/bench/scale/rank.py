"""The process of a rank that is measured: it holds its share of the model, and times what is asked."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.backends import choose_backend
from yaie.bench.scale.sizes import Dims, Draws, Kind
from yaie.core.config import EngineConfig
from yaie.core.contracts.ranks import Collectives
from yaie.core.errors import YaieError
from yaie.models.loader import ModelLoader
from yaie.models.shard import Shard
from yaie.models.whole import Whole
from yaie.system.child import end_with_parent, leave_signals_to_parent
from yaie.worker.build import Sizes, make_worker
from yaie.worker.parallel.groups import join, use_device
from yaie.worker.parallel.place import Place
from yaie.worker.parallel.rank_process import Part
from yaie.worker.warmup import Warmup

WARM_UP = 3
FLAVOURS: dict[Draws, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
}


@dataclass(frozen=True, slots=True)
class Steps:
    """Ask for the seconds of `count` decode steps. silent: without what goes between ranks."""

    rows: int
    context: int
    draws: Draws
    count: int
    silent: bool


@dataclass(frozen=True, slots=True)
class AllReduces:
    """Ask for the seconds of `count` all-reduces of so many bytes."""

    num_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Timed:
    """seconds: of each. calls: of the last one, (kind, bytes) to how many times."""

    seconds: list[float]
    calls: dict[tuple[Kind, int], int]


class Metered:
    """Collectives that count what they are given. Silent, they answer without asking other ranks:
    what a rank computes then takes as long, and means nothing."""

    def __init__(self, rank: int, size: int, real: Collectives | None) -> None:
        """real: None for a rank whose others do not exist."""
        self.rank, self.size, self.real = rank, size, real
        self.silent = real is None
        self.calls: Counter[tuple[Kind, int]] = Counter()

    def all_reduce(self, x: Tensor) -> Tensor:
        self.calls["all_reduce", x.nbytes] += 1
        return x if self.silent or self.real is None else self.real.all_reduce(x)

    def all_gather(self, x: Tensor) -> Tensor:
        self.calls["all_gather", x.nbytes] += 1
        if self.silent or self.real is None:
            return x.expand(self.size, *x.shape)
        return self.real.all_gather(x)


def run_rank(
    pipe: "Connection[Any, Any]", config: EngineConfig, place: Place, file: Path | None
) -> None:
    """The life of this process: it tells the model's numbers, and answers one question after the other.

    config: with the threads of one rank. file: through which the ranks find each other, None for a rank
    whose others do not exist.
    """
    leave_signals_to_parent()
    end_with_parent()
    try:
        rank = _Rank(config, place, file)
        pipe.send(rank.dims)
        while True:
            pipe.send(rank.answer(pipe.recv()))
    except (EOFError, OSError):
        pass  # the command has ended
    except Exception as error:  # noqa: BLE001, the command gets it
        pipe.send(error if isinstance(error, YaieError) else RuntimeError(repr(error)))
    os._exit(0)  # without waiting for others, who may hang


class _Rank:
    def __init__(self, config: EngineConfig, place: Place, file: Path | None) -> None:
        torch.set_num_threads(config.threads or 1)
        loader = ModelLoader(config, progress=False)
        device = use_device(loader.device, place.rank)
        backend = choose_backend(config, device, loader.head_dims, packed=loader.is_packed)
        backend.prepare(device)
        shard, real = Whole(), None
        lab = backend.parts["tensor_parallel"] if place.size > 1 else None
        if lab is not None and file is not None:
            real = join(config, place, file, lab, device).collectives
        self._metered = Metered(place.rank, place.size, real)
        if lab is not None:
            shard = Shard(lab, self._metered)
        products = partial(backend.make_packed_gemm, device)
        adapter, _ = loader.load_adapter(backend.make_ops(), backend.dtypes, products, shard)
        part = Part(adapter, loader.dtype, device, adapter.max_length)
        self.dims = Dims.of(adapter.config.get_text_config(), loader.dtype.itemsize)
        # Every made-up step reads and writes block 0.
        sizes = Sizes(1, 0, 0, config.max_num_seqs)
        self._run = Warmup(make_worker(config, backend, part, sizes))
        self._device = device

    def answer(self, question: Steps | AllReduces) -> Timed:
        if isinstance(question, AllReduces):
            x = torch.zeros(question.num_bytes // 4, dtype=torch.float32, device=self._device)
            self._metered.silent = False
            return self._timed(lambda: self._metered.all_reduce(x), question.count)
        rows, starts = question.rows, [question.context] * question.rows
        self._metered.silent = question.silent or self._metered.real is None
        self._run.decodes(rows, FLAVOURS[question.draws], starts)
        return self._timed(lambda: self._run.decodes(rows, starts=starts), question.count)

    def _timed(self, call: Callable[[], Any], count: int) -> Timed:
        found = []
        for number in range(WARM_UP + count):
            self._metered.calls.clear()
            begin = self._now()
            call()
            if number >= WARM_UP:
                found.append(self._now() - begin)
        return Timed(found, dict(self._metered.calls))

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
