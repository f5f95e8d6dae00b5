"""Workload serve: nano-vllm's requests as streams through `yaie serve`, beside the engine alone.

Clients keep what comes, with the time of each piece, and read it when a run is over. One of them has
25,000 pieces a second to take where a GPU is fast, and would be what is measured; so there are several,
in processes of their own, where there are cores for them. On a GPU the engine alone and the server take
the machine one after the other; on a CPU they share it and take turns.
"""

import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import psutil

from yaie.bench.http_client import Answer, ask_all
from yaie.bench.overhead import check
from yaie.bench.report import progress, save, show
from yaie.bench.served import serving
from yaie.bench.throughput.asked import Asked
from yaie.bench.throughput.contestants import Contestant, Ours, Run, Runner, prepared, race
from yaie.bench.throughput.drawn import described, draw
from yaie.bench.throughput.setting import Setting
from yaie.bench.workload import Job, spread
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError

ALONE, SERVED = "the engine alone", "through yaie serve"


@dataclass(slots=True)
class Waits:
    """Of one run, in milliseconds. first: from sending to the first piece, of each stream. gaps: between
    pieces of a stream, if all are sent at once from when every stream has begun. cores: that the server
    kept busy."""

    first: list[float]
    gaps: list[float]
    cores: float


@dataclass(slots=True)
class Served:
    """A server in a process of its own. delays: seconds until each job of a run is
    sent. See `Contestant`."""

    name: str
    config: EngineConfig
    runs: Sequence[Sequence[Job]]
    delays: Sequence[Sequence[float]]
    temperature: float
    waits: list[Waits] = field(default_factory=list)

    @contextmanager
    def opened(self) -> Iterator[Runner]:
        with (
            serving(self.config, "--log-level=warning") as (url, server),
            ProcessPoolExecutor(num_clients(), get_context("spawn")) as clients,
        ):
            processes = [one := psutil.Process(server.pid), *one.children(recursive=True)]
            self._ask(clients, url, [], [])  # what they import is not measured

            def carry_out(number: int, warm: bool = False) -> Run:
                del warm  # nothing is cached
                jobs, before = self.runs[number], _cpu(processes)
                at_once = not any(self.delays[number])
                begin = time.perf_counter()
                answers = self._ask(clients, url, jobs, self.delays[number])
                seconds = max(answer.times[-1] for answer in answers) - begin
                self.waits.append(waits_of(answers, (_cpu(processes) - before) / seconds, at_once))
                for answer, job in zip(answers, jobs, strict=True):
                    check(answer, job.num_output)
                return Run(seconds, sum(job.num_output for job in jobs))

            yield carry_out

    def _ask(
        self, clients: Executor, url: str, jobs: Sequence[Job], delays: Sequence[float]
    ) -> list[Answer]:
        """In the order of the jobs; each client has every so-manieth of them."""
        options: dict[str, Any] = {
            "ignore_eos": True,
            "temperature": self.temperature,
            "stream": True,
        }
        options["stream_options"] = {"include_usage": True}
        bodies = [
            json.dumps({"prompt": job.prompt, "max_tokens": job.num_output, **options}).encode()
            for job in jobs
        ]
        count = num_clients()
        asking = [
            clients.submit(
                ask_all, url, "/v1/completions", bodies[first::count], delays[first::count]
            )
            for first in range(count)
        ]
        answers: list[Answer] = [Answer()] * len(jobs)
        for first, share in enumerate(asking):
            answers[first::count] = share.result()
        return answers


def num_clients() -> int:
    """A quarter of the cores, and four at most."""
    return max(1, min(4, (os.cpu_count() or 1) // 4))


def _cpu(processes: Sequence[psutil.Process]) -> float:
    """Seconds of processor time so far."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


def waits_of(answers: Sequence[Answer], cores: float, at_once: bool = True) -> Waits:
    """The head of an answer comes before its first token, as a piece of its own or with it; the last
    piece is the end. Raises YaieError if there is no gap to speak of."""
    begun = max(answer.times[0] for answer in answers) if at_once else 0.0
    gaps = [
        1e3 * (later - earlier)
        for answer in answers
        for earlier, later in pairwise(answer.times)
        if earlier >= begun
    ]
    if len(gaps) < 2:
        raise YaieError("every stream was over when the last one began: ask for longer outputs")
    return Waits([1e3 * (answer.times[0] - answer.sent) for answer in answers], gaps, cores)


def arrivals(count: int, rate: float | None, seed: int) -> list[float]:
    """Seconds until each request is sent: at once, or as a Poisson process of `rate` a second."""
    rng, at, times = random.Random(seed), 0.0, []
    for _ in range(count):
        times.append(at)
        at += rng.expovariate(rate) if rate else 0.0
    return times


def run(config: EngineConfig, asked: Asked, file: str | None) -> None:
    """Print rates and waits of both. Raises ConfigError if a length does not fit the model, YaieError if
    a stream is not whole."""
    config = replace(prepared(config, asked.requests), prefix_caching=False)
    setting = Setting.of(config, asked)
    jobs = [draw(asked, setting.vocab_size, seed) for seed in asked.order]
    delays = [arrivals(asked.requests, asked.rate, seed) for seed in asked.order]
    served = Served(SERVED, config, jobs, delays, setting.temperature)
    contestants: list[Contestant] = [served]
    if asked.rate is None:
        contestants.insert(0, Ours(ALONE, config, jobs, setting.temperature, setting.look))
    with progress() as bar:
        runs = race(contestants, len(jobs), bar, in_turn=setting.in_turn)
    figures = setting.figures() | _figures(runs, served.waits[1:])
    _show(setting, figures)
    save(file, figures)


def _figures(runs: dict[str, list[Run]], waits: Sequence[Waits]) -> dict[str, Any]:
    rates = {name: [run.rate for run in one[1:]] for name, one in runs.items()}
    figures: dict[str, Any] = {
        "first": {name: one[0].rate for name, one in runs.items()},
        "tokens_per_second": rates,
        "first_ms": {"p50": [], "p99": []},
        "gap_ms": {"p50": [], "p99": []},
        "server_cores": [one.cores for one in waits],
    }
    for one in waits:
        for name, values in (("first_ms", one.first), ("gap_ms", one.gaps)):
            figures[name]["p50"].append(statistics.median(values))
            figures[name]["p99"].append(statistics.quantiles(values, n=100)[98])
    if ALONE in rates:
        pairs = zip(rates[SERVED], rates[ALONE], strict=True)
        figures["ratio"] = [mine / alone for mine, alone in pairs]
    return figures


def _show(setting: Setting, figures: dict[str, Any]) -> None:
    rows = [
        (f"{name}, tokens/s", spread(rates)) for name, rates in figures["tokens_per_second"].items()
    ]
    for name, label in (("first_ms", "to the first token"), ("gap_ms", "between tokens")):
        for point, values in figures[name].items():
            rows.append((f"{label}, {point}, ms", spread(values)))
    notes = [
        described(setting.asked),
        f"cores that the server kept busy: {spread(figures['server_cores'])}",
    ]
    if setting.asked.rate is None:
        notes.append("between tokens: from when every stream has its first")
    if "ratio" in figures:
        notes.append(f"through the server / alone: {spread(figures['ratio'])}")
    show(f"{setting.asked.requests} streams of {setting.name}", ["", "median (range)"], rows, notes)
