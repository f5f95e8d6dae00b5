"""`yaie bench bookkeeping`: what a step costs on the host, whatever the model."""

import statistics
from typing import Any

from yaie.backends import choose_backend
from yaie.bench.host import PROMPT_TOKENS, Case, time_overlapped, time_scheduling, time_steps
from yaie.bench.report import progress, save, show
from yaie.bench.workload import spread
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.models.loader import resolve_device

SHORTEST_PASS = 0.002
"""Seconds. A shorter sleep is mostly the operating system's."""
COLUMNS = (
    "scheduling: schedule and update alone; whole step: all that the host does for one, around a model "
    "that computes nothing; overlapped: what is left of it beside a forward pass that takes longer than "
    "control, in the overlapped loop"
)


def run(
    running: list[int],
    waiting: list[int],
    cached: list[int],
    steps: int,
    policy: str,
    mine: str,
    json: str | None,
) -> None:
    """Time steps in which every running request decodes one token: the scheduler's share alone, the
    whole step around a model that computes nothing, and what the overlapped loop leaves to wait for.

    Raises ConfigError for a policy or a part that there is not.
    """
    settings: dict[str, Any] = {"policy": policy, "mine": mine}
    config = EngineConfig(device="cpu", backend="torch", threads=1, **settings)
    backend = choose_backend(config, resolve_device(config))
    show_parts(backend.parts.table())
    rows, figures = [], []
    with progress() as bar:
        cases = [Case(r, w, c) for r in running for w in waiting for c in cached]
        for case in bar.track(cases, description="measuring"):
            alone = time_scheduling(backend, policy, case, steps)
            whole = time_steps(config, backend, case, steps)
            # Longer than all of control, which then is over before the pass is.
            seconds = max(SHORTEST_PASS, 2e-3 * statistics.median(whole))
            beyond = time_overlapped(config, backend, case, steps, seconds)
            rows.append(
                (case.running, case.waiting, case.cached, *_cells(case, alone, whole, beyond))
            )
            figures.append(
                {
                    "running": case.running,
                    "waiting": case.waiting,
                    "cached": case.cached,
                    "ms": alone,
                    "whole_ms": whole,
                    "overlapped_ms": beyond,
                    "forward_ms": 1e3 * seconds,
                }
            )
    columns = [
        "running",
        "waiting",
        "cached prefixes",
        "scheduling, ms a step",
        "us a request",
        "whole step, ms",
        "overlapped, ms",
    ]
    note = (
        f"decodes after prompts of {PROMPT_TOKENS} tokens, policy {policy}, greedy, "
        f"median of {steps} steps"
    )
    show("Bookkeeping", columns, rows, [note, COLUMNS])
    save(json, {"workload": note, "cases": figures})


def _cells(case: Case, alone: list[float], whole: list[float], beyond: list[float]) -> list[str]:
    each = f"{statistics.median(alone) / case.running * 1e3:.2f}"
    return [spread(alone), each, spread(whole), spread(beyond)]
