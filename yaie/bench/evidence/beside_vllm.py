"""Our engine and vLLM, both loaded, in turn on the same requests: pairs of figures and their ratios.

Who begins changes with each pair. The first pair does not count.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from yaie.bench.peers.process import Peer
from yaie.bench.throughput.contestants import Ours, Runner
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig

Sides = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What both do.

    runs_of: the runs of a pair, by its number. figures_of: names and values of one engine, whose runs
    begin with this number; more is better. as_seconds: names of those that are told as seconds.
    """

    pairs: int
    runs_of: Callable[[int], list[list[Job]]]
    figures_of: Callable[[Runner, int], Iterator[tuple[str, float]]]
    temperature: float = 0.0
    as_seconds: tuple[str, ...] = ()


def compare(
    plan: Plan, config: EngineConfig, settings: dict[str, Any], python: str | None, name: str
) -> dict[str, Any]:
    """The figures of both engines, with ratios, which are also printed under a name.

    settings: of the peer. python: the interpreter that has vLLM; None: this one.
    """
    runs = [jobs for pair in range(plan.pairs + 1) for jobs in plan.runs_of(pair)]
    peer = Peer("vLLM", "vllm", settings, runs, plan.temperature, python=python)
    found: dict[str, Sides] = {}
    backend: list[str] = []
    mine = Ours(
        "ours", config, runs, plan.temperature,
        look=lambda engine: backend.append(engine.backend.name),
    )  # fmt: skip
    with mine.opened() as ours, peer.opened() as theirs:
        for pair in range(plan.pairs + 1):
            turns = [("ours", ours), ("vllm", theirs)]
            for side, run in turns if pair % 2 else turns[::-1]:
                for what, value in plan.figures_of(run, pair * len(plan.runs_of(0))):
                    if pair:
                        found.setdefault(what, {}).setdefault(side, []).append(value)
    for what, sides in found.items():
        ratios = [our / their for our, their in zip(sides["ours"], sides["vllm"], strict=True)]
        if what in plan.as_seconds:
            sides |= {side: [1 / rate for rate in rates] for side, rates in sides.items()}
        print(
            f"{name} {what}: {median(sides['ours']):.4g} beside {median(sides['vllm']):.4g}, ratio "
            f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
        found[what] = sides | {"ratio": ratios}
    return {"backend": backend[0], "vllm": peer.about["version"], "figures": found}


def rate_of_steps(
    run: Runner, without: int, with_steps: int, count: int, steps: int, *, repeats: int = 2
) -> float:
    """Tokens/s of steps in which `count` requests decode: what a run with them takes longer than one
    without. repeats: of the run without, of which the fastest counts."""
    seconds = run(with_steps).seconds - min(run(without).seconds for _ in range(repeats))
    return count * steps / seconds


def runs_of_steps(
    jobs: Callable[[int, int], Sequence[Job]], batches: Sequence[int], steps: int
) -> list[list[Job]]:
    """Two runs for each batch: until each has its first token, and `steps` farther. jobs: makes so many
    requests with so many further tokens."""
    return [list(jobs(count, more)) for count in batches for more in (0, steps)]
