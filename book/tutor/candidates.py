"""The weights that further training may be followed by, and which of them are best; see retrain.py.

Several trainings that went on from the same weights are also averaged (model soups, Wortsman et al.
2022), and their mean is mixed with the weights before, which forgets less.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from book.tutor.average import LOG, WEIGHTS, average
from yaie.system.files import write_whole

BEFORE = "before"
LEAST_REFUSED = 0.9
"""Share of the prompts on unknown things that must be refused; `test_weights.py` wants it, too."""
LOST_WHYS = 0.034
"""Share of the unusual whys that may be lost: two of the 60, less than chance alone may move."""


@dataclass(frozen=True)
class Candidate:
    """A mean of the weights before with a `share` of the mean of the trainings.

    `is_last`: of a training's last weights, and not of the mean of its last part.
    """

    name: str
    runs: tuple[Path, ...]
    share: float
    is_last: bool = False


def candidates(runs: tuple[Path, ...]) -> tuple[Candidate, ...]:
    """In the order in which they are preferred if they are equally good."""
    if len(runs) > 1:
        soups = [Candidate("soup", runs, 1.0)]
        soups += [Candidate(f"soup-{share}", runs, share) for share in (0.85, 0.75, 0.5)]
        return (*soups, *(Candidate(f"{run.name}-alone", (run,), 1.0) for run in runs))
    return (
        Candidate("mean", runs, 1.0),
        Candidate("mean-0.75", runs, 0.75),
        Candidate("mean-0.5", runs, 0.5),
        Candidate("last", runs, 1.0, is_last=True),
        Candidate("last-0.5", runs, 0.5, is_last=True),
    )


def write_candidate(one: Candidate, before: Path, out: Path) -> Path:
    """Its folder below `out`; its log says, as the card wants to know it, how it came about."""
    folder, sources = out / one.name, one.runs
    if one.is_last:
        sources = tuple(_last(run, out / f"source-{run.name}") for run in one.runs)
    average(before, sources[0], folder, one.share, beside=sources[1:])
    logs = [json.loads((run / LOG).read_text(encoding="utf-8")) for run in one.runs]
    stages = [log | {"mean": not one.is_last} for log in logs]
    log = {"share": one.share, "stages": stages, "side_by_side": len(stages) > 1}
    write_whole(folder / LOG, json.dumps(log, indent=1) + "\n")
    return folder


def _last(run: Path, out: Path) -> Path:
    """The training's folder with its last weights."""
    shutil.copytree(run, out, ignore=shutil.ignore_patterns("last", "kept-*"), dirs_exist_ok=True)
    shutil.copy(run / "last" / WEIGHTS, out)
    return out


def best_of(judged: dict[str, dict[str, Any]]) -> str:
    """Of those that keep to the floors, the name of the first with most right answers.

    judged: figures of `judge.judge` by name, in the order of preference; "before" is not chosen, and has
    the unusual whys that most of must be kept. If none keeps to the floors, the nearest to them wins.

    Raises ValueError if there is no candidate.
    """
    least_whys = judged.get(BEFORE, {}).get("unusual_whys", 0.0) - LOST_WHYS

    def merit(name: str) -> tuple[float, float]:
        figures = judged[name]
        missing = max(0.0, LEAST_REFUSED - figures["unknown_refused"])
        missing += max(0.0, least_whys - figures["unusual_whys"])
        return -missing, figures["right"]

    names = [name for name in judged if name != BEFORE]
    if not names:
        raise ValueError("No candidate was judged.")
    return max(names, key=merit)
