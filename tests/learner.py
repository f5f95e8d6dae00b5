"""A learner's parts for tests: the reference's files in a package `labs` of their own, broken or not."""

import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import LabRecord, Progress, part_digest

WRAPPED = """

faults = []
_real = {name}


def _faulty(self, *args, **kwargs):
    fault = faults.pop(0) if faults else None
    if fault is not None:
        raise fault
    return _real(self, *args, **kwargs)


{name} = _faulty
"""


def hand_in(labs: Path, lab: str, extra: str = "") -> Path:
    """Put the reference of a lab into `labs`, with `extra` code behind it."""
    folder = labs / lab
    shutil.copytree(ROOT / "solutions" / lab, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "__init__.py").open("a") as file:
        file.write(extra)
    return folder


def hand_in_faulty(labs: Path, lab: str, method: str) -> None:
    """The same, where `method` ("Sampler.sample") raises what `faults_of(lab)` has for its next call."""
    hand_in(labs, lab, WRAPPED.format(name=method))


def faults_of(lab: str) -> list[Any]:
    """What the faulty method of a part in use raises, call by call; None for a call that goes well."""
    faults: list[Any] = sys.modules[f"labs.{lab}"].faults
    return faults


def record_pass(labs: Path, lab: str, *, tasks: int | None = None) -> None:
    """Write into the progress beside `labs` that the first `tasks` tasks of a lab, or all, passed."""
    progress = Progress.load(labs.parent)
    passed = tuple(task.id for task in load_curriculum()[lab].tasks[:tasks])
    digest = part_digest(labs / lab)
    graded_at, suite = datetime.now(timezone.utc).isoformat(), load_curriculum()[lab].suite
    progress.records[lab] = LabRecord(digest, passed, 0, graded_at, suite)
    progress.save()
