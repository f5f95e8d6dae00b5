"""Workloads random and nano: useful output tokens per second."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from yaie.bench.limits import Limit
from yaie.bench.peers.process import Peer
from yaie.bench.report import progress, save, show
from yaie.bench.throughput.ablation import FULL, same_answers, variants
from yaie.bench.throughput.asked import Asked
from yaie.bench.throughput.contestants import Contestant, Ours, Run, prepared, race
from yaie.bench.throughput.drawn import described, draw, static_bound
from yaie.bench.throughput.setting import Setting, our_name
from yaie.bench.workload import Job, spread
from yaie.core.config import EngineConfig

Runs = dict[str, list[Run]]
Jobs = Sequence[Sequence[Job]]


def run(config: EngineConfig, asked: Asked, json: str | None) -> None:
    """Run every contestant on the requests of each seed, and print rates, ratios and the limit.

    Raises ConfigError if a length does not fit the model, YaieError if a request or a peer fails.
    """
    config = prepared(config, asked.requests)
    setting = Setting.of(config, asked)
    jobs = [draw(asked, setting.vocab_size, seed) for seed in asked.order]
    ours = our_name(config)
    contestants: list[Contestant]
    notes = [described(asked)]
    if asked.ablation:
        chosen, idle = variants(config)
        names = [ours if name == FULL else name for name in chosen]
        contestants = [
            Ours(name, one, jobs, setting.temperature, setting.look if name == ours else _ignore)
            for name, one in zip(names, chosen.values(), strict=True)
        ]
        notes += idle
    else:
        contestants = [Ours(ours, config, jobs, setting.temperature, setting.look)]
    contestants += setting.peers(jobs)
    in_turn = setting.in_turn and not asked.ablation
    with progress() as bar:
        runs = race(contestants, len(jobs), bar, in_turn=in_turn)
        bar.update(bar.add_task(""), description="what the machine can do")
        limit = setting.limit()
    figures = setting.figures() | _rates(runs) | _ratios(runs, ours)
    figures |= _lengths(config, jobs[1:]) | _limits(config, limit, jobs[1:], runs[ours][1:])
    figures["peers"] = {one.name: one.about for one in contestants if isinstance(one, Peer)}
    if asked.ablation:
        figures["same_answers"] = _same(runs, ours)
    _show(setting, runs, ours, figures, notes)
    save(json, figures)


def _ignore(_: object) -> None:
    """The parts of the full engine are shown; the others' differ by what their name says."""


def _rates(runs: Runs) -> dict[str, Any]:
    """first: of the run after start, with the first seed; the others one for each seed."""
    return {
        "first": {name: one[0].rate for name, one in runs.items()},
        "tokens_per_second": {name: [run.rate for run in one[1:]] for name, one in runs.items()},
    }


def _ratios(runs: Runs, ours: str) -> dict[str, Any]:
    """Ours to each other's of the same seed; the first run is left out."""
    ratios = {
        name: [mine.rate / run.rate for mine, run in zip(runs[ours][1:], one[1:], strict=True)]
        for name, one in runs.items()
        if name != ours
    }
    if not ratios:
        return {}
    best = min(ratios, key=lambda name: statistics.median(ratios[name]))
    return {"ratio": {"to": best, "values": ratios[best]}, "ratios": ratios}


def _lengths(config: EngineConfig, jobs: Jobs) -> dict[str, Any]:
    return {
        "prompt_tokens": [sum(len(job.prompt) for job in one) for one in jobs],
        "output_tokens": [sum(job.num_output for job in one) for one in jobs],
        "static_bound": [static_bound(one, config.max_num_seqs) for one in jobs],
    }


def _limits(
    config: EngineConfig, limit: Limit | str, jobs: Jobs, runs: Sequence[Run]
) -> dict[str, Any]:
    """The rate that the machine allows for each seed, and what share of it we reach."""
    if isinstance(limit, str):
        return {"limit": None, "no_limit": limit}
    least = [limit.workload_seconds(one, config.max_num_seqs) for one in jobs]
    rates = [run.output_tokens / seconds for run, seconds in zip(runs, least, strict=True)]
    shares = [seconds / run.seconds for run, seconds in zip(runs, least, strict=True)]
    return {
        "limit": {
            **limit.ceilings.as_json(),
            "weight_bytes": limit.cost.weight_bytes,
            "kv_bytes_per_token": limit.cost.kv_bytes,
            "tokens_per_second": rates,
            "share": shares,
        }
    }


def _same(runs: Runs, ours: str) -> dict[str, list[int]]:
    """For each engine without a technique, how many answers of each seed are the full engine's."""
    return {
        name: [same_answers(a.outputs, b.outputs) for a, b in zip(one, runs[ours], strict=True)][1:]
        for name, one in runs.items()
        if name != ours and one[0].outputs
    }


def _show(
    setting: Setting, runs: Runs, ours: str, figures: dict[str, Any], notes: list[str]
) -> None:
    asked = setting.asked
    ratios = figures.get("ratios", {})
    rows = []
    for name, rates in figures["tokens_per_second"].items():
        cells = [f"{figures['first'][name]:,.4g}", *(f"{rate:,.4g}" for rate in rates)]
        ratio = f"{statistics.median(ratios[name]):.3g}" if name in ratios else ""
        rows.append((name, *cells, f"{statistics.median(rates):,.4g}", ratio))
    columns = ["", "first run", *(f"seed {seed}" for seed in asked.seeds), "median", "ours to it"]
    if not ratios:
        columns.pop()
        rows = [row[:-1] for row in rows]
    notes.append(
        f"{_each(figures['prompt_tokens'])} tokens in, {_each(figures['output_tokens'])} out"
    )
    if "ratio" in figures:
        notes.append(f"ratio to {figures['ratio']['to']}: {spread(figures['ratio']['values'])}")
    if "static" in asked.peers:
        bounds = [bound["ratio"] for bound in figures["static_bound"]]
        static = our_name(replace(setting.config, batching="static"))
        notes.append(
            f"continuous to static batching: {spread(ratios[static])}; the lengths allow at most "
            f"{spread(bounds)}"
        )
    for name, counts in figures.get("same_answers", {}).items():
        notes.append(f"{name}: {_each(counts)} of {asked.requests} answers are the same")
    for name, about in figures["peers"].items():
        if "vllm" in name or "sglang" in name:
            notes.append(f"{name} {about['version']}")
    notes.append(_limit_note(figures))
    title = f"Throughput of {setting.name}: useful output tokens/s"
    show(title, columns, rows, notes)


def _limit_note(figures: dict[str, Any]) -> str:
    limit = figures["limit"]
    if limit is None:
        return str(figures["no_limit"])
    share = statistics.median(limit["share"])
    return (
        f"{share:.0%} of the limit of {spread(limit['tokens_per_second'])} tokens/s, from "
        f"{limit['bytes_per_second'] / 1e9:,.4g} GB/s and "
        f"{limit['operations_per_second'] / 1e12:,.4g} TFLOP/s ({limit['what']})"
    )


def _each(values: Sequence[int]) -> str:
    """Numbers of each seed, once if they are the same."""
    return " / ".join(f"{value:,}" for value in dict.fromkeys(values))
