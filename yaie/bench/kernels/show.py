"""The figures of `yaie bench kernels` as a table: a row for each operation and size, a column a run."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from yaie.bench.kernels.case import Case
from yaie.bench.report import machine
from yaie.cli.console import out
from yaie.system.terminal import Terminal

WIDTH = 180
"""Where it is not for a terminal to say."""
OURS = ("triton", "cuda", "torch")
Json = dict[str, Any]


def show_cases(cases: Sequence[Case], figures: Json) -> None:
    """Print the table, what failed, the ceilings and the machine."""
    wide = out if out.is_terminal else Terminal(width=WIDTH)
    table = Table(title="Kernels", title_justify="left", title_style="bold")
    table.add_column("operation")
    table.add_column("size")
    for name in (*OURS, "share", "goal"):
        table.add_column(name, justify="right")
    table.add_column("others")
    failures = []
    for case in cases:
        result = figures["operations"][case.operation][case.size]
        runs = result["runs"]
        ours = [cell(case, runs[name]) if name in runs else "" for name in OURS]
        others = ", ".join(
            f"{name} {cell(case, entry)}" for name, entry in runs.items() if name not in OURS
        )
        table.add_row(case.operation, case.label, *ours, share(runs), case.goal, others)
        failures += [
            f"{case.operation} {case.size} {name}: {entry['failed']}"
            for name, entry in {**runs, "": result}.items()
            if "failed" in entry
        ]
    wide.print(table)
    for line in failures:
        wide.print(Text("failed", "bold red"), line)
    for name, reason in figures["absent"].items():
        wide.print(f"not timed: {name}, {reason}", style="dim")
    for unit, limit in figures["ceilings"].items():
        wide.print(f"{limit['what']}: {limit['rate']:,.0f} {unit}")
    here = machine()
    versions = ", ".join(f"{name} {text}" for name, text in figures["versions"].items() if text)
    wide.print(
        f"{here['gpu']}, torch {here['torch']}, {versions}, {figures['seconds']} s", style="dim"
    )


def cell(case: Case, entry: Json) -> str:
    """The rate, or the time where that says more."""
    if "failed" in entry:
        return "failed"
    if case.goal.endswith("ms") or case.operation.startswith("sample"):
        return f"{entry['ms']:.4f} ms"
    return f"{entry['rate']:,.0f}" + (" TF" if case.unit == "TFLOP/s" else "")


def share(runs: Json) -> str:
    """Of the ceiling, by the first of ours that ran."""
    for name in OURS:
        if "share" in runs.get(name, {}):
            return f"{runs[name]['share']:.0%}"
    return ""
