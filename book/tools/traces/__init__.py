"""Traces: what the book's figures replay, recorded from the parts themselves.

A recorder is a module in this folder, named after its figure (`radix_tree.py` records the trace of the
figure `radix-tree`, book/traces/radix-tree.json), with

    LAB = "radix_tree"                     the lab whose part the figure shows, None if it shows none
    def record(part: Part) -> Trace: ...   part("radix_tree") is that lab's package, solutions or labs

It uses parts by their contracts only (yaie/core/contracts), because `make show` must record a
learner's part with it. Its result is JSON, the same in every run: no clock, no randomness, floats
rounded. torch is imported within `record`, and only where a part needs it. A module whose name begins
with an underscore is no recorder; it holds what several of them share.
"""

import json
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT / "book/traces"
# Modules of this folder that are run, not recorded with.
COMMANDS = {"show"}
# A value longer than this is broken over lines; the items of a list never are.
WIDTH = 100

Part = Callable[[str], ModuleType]
"""Gives a lab's package: `part("paged_cache").BlockManager(8, 4)`."""

Trace = dict[str, Any]
"""What a figure gets as `data`; a stepped figure's has `steps`, each with `say`, its caption."""


class Recorder(Protocol):
    """What a recorder's module has."""

    LAB: str | None

    def record(self, part: Part) -> Trace:
        """Run the part and note what it does."""
        ...


def names() -> list[str]:
    """The traces that can be recorded, by the names of their figures, in order."""
    modules = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return [
        module.replace("_", "-")
        for module in modules
        if not module.startswith("_") and module not in COMMANDS
    ]


def recorder(name: str) -> Recorder:
    """The module that records one trace."""
    return cast(Recorder, import_module(f"{__name__}.{name.replace('-', '_')}"))


def of_lab(lab: str) -> list[str]:
    """The traces that show a part of this lab."""
    return [name for name in names() if lab == recorder(name).LAB]


def reference(lab: str) -> ModuleType:
    """The reference's package of a lab."""
    return import_module(f"solutions.{lab}")


def trace_file(name: str) -> Path:
    """Where a trace is kept."""
    return TRACES / f"{name}.json"


def as_text(trace: Trace) -> str:
    """JSON that a person can compare with an older one: one item of a list, so one step, a line."""
    return _text(trace) + "\n"


def _text(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) <= WIDTH:
        return line
    if isinstance(value, dict):
        rows = [f"{json.dumps(key, ensure_ascii=False)}: {_text(value[key])}" for key in value]
        return "{\n" + ",\n".join(rows) + "\n}"
    if isinstance(value, (list, tuple)) and any(isinstance(i, (dict, list, tuple)) for i in value):
        rows = [json.dumps(item, ensure_ascii=False, allow_nan=False) for item in value]
        return "[\n" + ",\n".join(rows) + "\n]"
    return line
