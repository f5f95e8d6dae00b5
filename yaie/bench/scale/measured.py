"""`yaie bench scale` of a model: ranks that are here are timed, and a prediction is checked on them."""

import os
import statistics
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.text import Text

from yaie.bench.report import progress, save, show
from yaie.bench.scale.crew import Crew, crews
from yaie.bench.scale.links import Links, fit
from yaie.bench.scale.rank import AllReduces, Steps
from yaie.bench.scale.sizes import Call, Dims, Draws, Kind, calls
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.models.loader import ModelLoader
from yaie.system.processor import usable_cores
from yaie.worker.parallel.groups import check_devices

SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the all-reduces that are timed."""
ALL_REDUCES = 20
STEPS = 24
COLUMNS = (
    "times in ms. compute: a rank's own share, with nothing sent",
    "between: what collectives should take. predicted: both; ratio: to the measured step",
    "speed-up: of the measured step, or else of the predicted one, against one rank",
    "ranks that are not measured: one of them computes alone",
)
BUSY = 0.8
FURTHER = (2, 4, 8)
"""How many times as many ranks are simulated."""


@dataclass(slots=True)
class Batch:
    """Milliseconds of decode steps, round by round.

    one: on one rank. whole: on all ranks. compute: by ranks, without what goes between them. counted:
    the collectives of a step, as the ranks counted them.
    """

    one: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    compute: dict[int, list[float]] = field(default_factory=dict)
    counted: dict[tuple[Kind, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Figures:
    """all_reduce_ms: round by round, by the bytes of the tensor. load: programs that ran before,
    on average."""

    batches: dict[int, Batch]
    load: float = 0.0
    all_reduce_ms: dict[int, list[float]] = field(default_factory=dict)


def run(
    config: EngineConfig,
    batches: list[int],
    context: int,
    draws: Draws,
    repeats: int,
    json: str | None,
) -> None:
    """Time one rank and several, with what they send and without; predict the second from the rest.

    A rank stands for a device: it always has the same number of threads. Raises ConfigError
    if the model cannot be split so.
    """
    ranks = max(2, config.tensor_parallel)
    config, further = _prepared(config, ranks, max(batches))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    figures = Figures({rows: Batch() for rows in batches}, load)
    with crews(config, [1, ranks], further) as (dims, made), progress() as bar:
        task = bar.add_task("measuring", total=repeats)
        for _ in range(repeats):
            _all_reduces(made[ranks], figures)
            for rows, batch in figures.batches.items():
                _steps(made, ranks, Steps(rows, context, draws, STEPS, silent=False), batch)
            bar.advance(task)
    _report(config, dims, figures, ranks, context, draws, json)


def _prepared(config: EngineConfig, ranks: int, most: int) -> tuple[EngineConfig, list[int]]:
    """With the threads of one rank; and how many ranks can be simulated."""
    if config.pipeline_parallel > 1:
        raise ConfigError(
            "stages are predicted, for --shape, and not measured: leave out pipeline_parallel",
            param="pipeline_parallel",
        )
    split = replace(config, tensor_parallel=ranks)
    loader = ModelLoader(split, progress=False)
    check_devices(split, loader.device)
    loader.check_ranks(split)
    loader.fetch()
    threads = config.threads or usable_cores() or os.cpu_count() or 1
    further = []
    for size in (ranks * times for times in FURTHER):
        try:
            loader.check_ranks(replace(config, tensor_parallel=size))
        except ConfigError:
            continue
        further.append(size)
    own = replace(config, threads=max(1, threads // ranks), graphs="off")
    return replace(own, max_num_seqs=max(most, config.max_num_seqs)), further


def _all_reduces(crew: Crew, figures: Figures) -> None:
    for num_bytes in SIZES:
        slowest = max(_median(one.seconds) for one in crew.ask(AllReduces(num_bytes, ALL_REDUCES)))
        figures.all_reduce_ms.setdefault(num_bytes, []).append(slowest)


def _steps(made: dict[int, Crew], ranks: int, asked: Steps, batch: Batch) -> None:
    batch.one.append(max(_median(one.seconds) for one in made[1].ask(asked)))
    timed = made[ranks].ask(asked)
    batch.whole.append(max(_median(one.seconds) for one in timed))
    batch.counted = dict(timed[0].calls)
    for size, crew in made.items():
        if size > 1:
            alone = crew.ask(replace(asked, silent=True))
            slowest = max(_median(one.seconds) for one in alone)
            batch.compute.setdefault(size, []).append(slowest)


def _median(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


def counts_as_predicted(counted: dict[tuple[Kind, int], int], made: list[Call]) -> bool:
    """Whether a rank has seen just these collectives."""
    expected: dict[tuple[Kind, int], int] = {}
    for call in made:
        key = call.kind, call.num_bytes
        expected[key] = expected.get(key, 0) + call.times
    return counted == expected


def _report(
    config: EngineConfig,
    dims: Dims,
    figures: Figures,
    ranks: int,
    context: int,
    draws: Draws,
    json: str | None,
) -> None:
    points = {
        size: statistics.median(ms) / 1e3 for size, ms in sorted(figures.all_reduce_ms.items())
    }
    links = fit("ring", ranks, points)
    found = {
        rows: _compared(dims, links, batch, ranks, rows, draws)
        for rows, batch in figures.batches.items()
    }
    columns = ["batch", "ranks", "compute", "between", "predicted", "measured", "ratio", "KB sent",
               "speed-up"]  # fmt: skip
    table = [row for rows, one in found.items() for row in _rows(rows, one)]
    rate = f"{links.bandwidth / 1e9:.2f} GB/s"
    far = [links.all_reduce(size, ranks) / seconds for size, seconds in points.items()]
    fitted = (
        f"links: {1e6 * links.latency:.1f} us and {rate}, from all-reduces on {ranks} ranks of "
        f"{SIZES[0] >> 10} KiB to {SIZES[-1] >> 20} MiB, which they give within {min(far):.2f} to "
        f"{max(far):.2f} times what was measured"
    )
    notes: list[str | Text] = [
        f"a rank is a process with {config.threads} threads; decode steps at {context} tokens, {draws}",
        fitted,
        *COLUMNS,
    ]
    if all(one["counted as predicted"] for one in found.values()):
        notes.append("the ranks counted just the collectives that were predicted")
    else:
        other = "the ranks counted other collectives than those that were predicted"
        notes.append(Text(other, "red"))
    if figures.load > BUSY:
        busy = (
            f"other programs were at work (load {figures.load:.1f}): ranks then wait for each other, "
            "and these figures say little"
        )
        notes.append(Text(busy, "red"))
    show(f"{config.model} on more ranks", columns, table, notes)
    data: dict[str, Any] = {
        "workload": f"decode steps at {context} tokens, {draws}",
        "model": config.model,
        "threads_of_a_rank": config.threads,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "links": {"algorithm": links.algorithm, "latency_us": 1e6 * links.latency,
                  "bytes_per_second": links.bandwidth},
        "load": figures.load,
        "all_reduce_ms": figures.all_reduce_ms,
        "fitted_all_reduce_ms": {s: 1e3 * links.all_reduce(s, ranks) for s in points},
        "batches": found,
    }  # fmt: skip
    save(json, data)


def _compared(
    dims: Dims, links: Links, batch: Batch, ranks: int, rows: int, draws: Draws
) -> dict[str, Any]:
    one, whole = statistics.median(batch.one), statistics.median(batch.whole)
    sizes: dict[int, dict[str, Any]] = {}
    for size, compute in sorted(batch.compute.items()):
        made = calls(dims, size, rows, draws)
        collectives = 1e3 * links.collectives(made, size)
        predicted = statistics.median(compute) + collectives
        sizes[size] = {
            "compute_ms": compute,
            "collectives_ms": collectives,
            "predicted_ms": predicted,
            "bytes_sent": sum(call.sent(links.algorithm, size) for call in made),
            "predicted_speed_up": one / predicted,
        }
    own = sizes[ranks]
    own["measured_ms"] = batch.whole
    own["measured_speed_up"] = one / whole
    own["predicted_to_measured"] = own["predicted_ms"] / whole
    as_predicted = counts_as_predicted(batch.counted, calls(dims, ranks, rows, draws))
    return {"one_ms": batch.one, "ranks": sizes, "counted as predicted": as_predicted}


def _rows(rows: int, found: dict[str, Any]) -> list[tuple[str, ...]]:
    one = statistics.median(found["one_ms"])
    table: list[tuple[str, ...]] = [(str(rows), "1", "", "", "", f"{one:.3g}", "", "0", "1")]
    for size, own in found["ranks"].items():
        measured = own.get("measured_ms")
        table.append(
            (
                "",
                str(size),
                f"{statistics.median(own['compute_ms']):.3g}",
                f"{own['collectives_ms']:.3g}",
                f"{own['predicted_ms']:.3g}",
                f"{statistics.median(measured):.3g}" if measured else "",
                f"{own['predicted_to_measured']:.2f}" if measured else "",
                f"{own['bytes_sent'] / 1e3:,.1f}",
                f"{own.get('measured_speed_up', own['predicted_speed_up']):.2f}",
            )
        )
    return table
