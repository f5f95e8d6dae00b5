"""What a learner has passed, and on which source: `.yaie/progress.json`, readable and small.

A pass counts for the exact source it was graded on, named by a hash of the part's files. The grader
writes it; `yaie/parts.py` reads it to decide whose part runs.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yaie.curriculum.manifest import ROOT, Lab
from yaie.system.files import write_whole
from yaie.system.locks import locked

PROGRESS = Path(".yaie/progress.json")
CUDA_SOURCES = {".cu", ".cuh"}
SOURCES = {".py", *CUDA_SOURCES}


def source_files(folder: Path) -> list[Path]:
    """A part's files in the order of their names, without what editors keep in hidden folders. What is
    no file is none, whatever its name: to read a pipe would take for ever."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SOURCES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def part_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a part's source files, in the order of their names."""
    return digest_of(
        (os.fsencode(file.relative_to(folder).as_posix()), file.read_bytes())
        for file in source_files(folder)
    )


def digest_of(files: Iterable[tuple[bytes, bytes]]) -> str:
    """SHA-256 over names and contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        # Lengths keep one file's end apart from the next one's beginning.
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class LabRecord:
    """The last grading of a lab. passed: task ids. graded_at: ISO 8601, UTC. suite: the oldest version
    of the lab's grader that a task passed by. earlier: tasks that passed on an earlier source and were
    not graded since."""

    digest: str
    passed: tuple[str, ...]
    points: int
    graded_at: str
    suite: int = 1
    earlier: tuple[str, ...] = ()


class Progress:
    """The file in memory. `hints` counts the rungs that were shown, by task id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, LabRecord] = {}
        self.hints: dict[str, int] = {}

    @classmethod
    def load(cls, root: Path = ROOT) -> "Progress":
        """Read a checkout's progress. A file that is missing or was garbled counts as empty."""
        progress = cls(root / PROGRESS)
        try:
            table = json.loads(progress.path.read_text("utf-8"))
            for key, entry in table["labs"].items():
                progress.records[key] = _record(entry)
            progress.hints = {str(task): int(rung) for task, rung in table["hints"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(progress.path)
        return progress

    @classmethod
    @contextmanager
    def changing(cls, root: Path = ROOT) -> Iterator["Progress"]:
        """A checkout's progress as it is now, to be changed in the block and saved there: whoever else
        wants to change it waits, so that what is written is what was read and one change more."""
        with locked(root / PROGRESS):
            yield cls.load(root)

    def save(self) -> None:
        """Write the file, in one piece even if two processes do so at once. Raises OSError.

        What was read before must have been read in the same `changing` block.
        """
        table = {
            "labs": {key: asdict(record) for key, record in sorted(self.records.items())},
            "hints": dict(sorted(self.hints.items())),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(table, indent=2) + "\n")

    def passed_tasks(self, lab: Lab, folder: Path) -> tuple[str, ...]:
        """The tasks whose pass still holds: those of the last grading, if the source is the same."""
        record = self.records.get(lab.key)
        if record is None or not folder.is_dir() or record.digest != part_digest(folder):
            return ()
        return tuple(task.id for task in lab.tasks if task.id in record.passed)

    def earlier_passes(self, lab: Lab, folder: Path) -> tuple[str, ...]:
        """The tasks that passed before the source changed, and were not graded since."""
        record = self.records.get(lab.key)
        if record is None or not folder.is_dir():
            return ()
        holds = record.digest == part_digest(folder)
        earlier = record.earlier if holds else (*record.earlier, *record.passed)
        return tuple(task.id for task in lab.tasks if task.id in earlier)

    def is_complete(self, lab: Lab, folder: Path) -> bool:
        """Whether every task of the lab has passed on exactly this source."""
        return len(self.passed_tasks(lab, folder)) == len(lab.tasks)

    def is_outdated(self, lab: Lab) -> bool:
        """Whether its last grading was by an older version of the grader."""
        record = self.records.get(lab.key)
        return record is not None and record.suite < lab.suite


def _record(entry: dict[str, Any]) -> LabRecord:
    return LabRecord(
        str(entry["digest"]),
        tuple(str(task) for task in entry["passed"]),
        int(entry["points"]),
        str(entry["graded_at"]),
        int(entry.get("suite", 1)),
        tuple(str(task) for task in entry.get("earlier", ())),
    )
