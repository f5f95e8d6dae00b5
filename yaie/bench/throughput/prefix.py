"""Workload prefix: what the prefix cache finds and saves, and what it costs where it finds nothing."""

import statistics
from dataclasses import replace
from typing import Any

from yaie.bench.report import progress, save, show
from yaie.bench.throughput.asked import Asked
from yaie.bench.throughput.contestants import Contestant, Ours, Run, prepared, race
from yaie.bench.throughput.drawn import described, ideal_hit_rate, prefix_jobs
from yaie.bench.throughput.setting import Setting
from yaie.bench.workload import spread
from yaie.core.config import EngineConfig

WITH, WITHOUT = "with the cache", "without"


def run(config: EngineConfig, asked: Asked, json: str | None) -> None:
    """Run prompts that share prefixes and prompts that share nothing, with the cache and without.

    Raises ConfigError if a prompt does not fit the model, YaieError if a request fails.
    """
    config = prepared(config, asked.groups * asked.group_size)
    setting = Setting.of(config, asked)
    shared, alone = (
        [prefix_jobs(asked, setting.vocab_size, seed, shares=shares) for seed in asked.order]
        for shares in (True, False)
    )
    # Each run beside its sibling that shares nothing.
    jobs = [one for pair in zip(shared, alone, strict=True) for one in pair]
    contestants: list[Contestant] = [
        Ours(WITH, replace(config, prefix_caching=True), jobs, look=setting.look),
        Ours(WITHOUT, replace(config, prefix_caching=False), jobs),
    ]
    with progress() as bar:
        runs = race(contestants, len(jobs), bar, in_turn=setting.in_turn)
    figures = setting.figures() | _figures(runs, ideal_hit_rate(asked, config.block_size))
    _show(setting, figures)
    save(json, figures)


def _figures(runs: dict[str, list[Run]], ideal: float) -> dict[str, Any]:
    """For each kind of prompts the seconds of each seed, those of the first run apart."""
    kinds = {"shared": 0, "different": 1}
    figures: dict[str, Any] = {"first": {}, "seconds": {}}
    for kind, start in kinds.items():
        seconds = {name: [run.seconds for run in one[start::2]] for name, one in runs.items()}
        figures["first"][kind] = {name: one[0] for name, one in seconds.items()}
        figures["seconds"][kind] = {name: one[1:] for name, one in seconds.items()}
    figures["hit_rate"] = [run.hit_rate for run in runs[WITH][2::2]]
    figures["hit_rate_different"] = [run.hit_rate for run in runs[WITH][3::2]]
    figures["ideal_hit_rate"] = ideal
    shared, different = figures["seconds"]["shared"], figures["seconds"]["different"]
    figures["ratio"] = [
        without / cached for cached, without in zip(shared[WITH], shared[WITHOUT], strict=True)
    ]
    figures["cost_without_hits"] = [
        cached / without - 1
        for cached, without in zip(different[WITH], different[WITHOUT], strict=True)
    ]
    return figures


def _show(setting: Setting, figures: dict[str, Any]) -> None:
    rows = []
    for kind, label in (("shared", "shared prefixes"), ("different", "nothing shared")):
        for name, seconds in figures["seconds"][kind].items():
            cells = [f"{figures['first'][kind][name]:.4g}", *(f"{one:.4g}" for one in seconds)]
            rows.append((f"{label}, {name}", *cells, f"{statistics.median(seconds):.4g}"))
    seeds = [f"seed {seed}" for seed in setting.asked.seeds]
    hits = statistics.median(figures["hit_rate"])
    costs = figures["cost_without_hits"]
    cost = f"{statistics.median(costs):+.1%} ({min(costs):+.1%} to {max(costs):+.1%})"
    notes = [
        described(setting.asked),
        f"hit rate {hits:.1%} of the prompts' tokens, ideal {figures['ideal_hit_rate']:.1%}",
        f"shared prefixes, without / with the cache: {spread(figures['ratio'])}",
        f"cost of the cache where nothing is shared: {cost}",
    ]
    title = f"Shared prefixes on {setting.name}: seconds"
    show(title, ["", "first run", *seeds, "median"], rows, notes)
