"""Submissions that are known: the stub, the reference, and those that are wrong or right by design."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.stubs import generate
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import ROOT, Lab

GRADER = Path(__file__).resolve().parent.parent
IGNORED = shutil.ignore_patterns("__pycache__")


class VariantError(ValueError):
    """A file of known_wrong or known_right that cannot be used. The message begins with its path."""


@dataclass(frozen=True, slots=True)
class KnownWrong:
    """A misconception as edits of the reference.

    task: must fail; `also`: fail with it, because they cannot be right either. says: a regular
    expression that the failure of `task` must contain. edits: (file, old text, new text). kind: of the
    mistake, where its words do not tell; see `report/kinds.py`.
    """

    name: str
    misconception: str
    task: str
    also: tuple[str, ...]
    says: str
    edits: tuple[tuple[str, str, str], ...]
    kind: tuple[str, ...] = ()

    @property
    def must_fail(self) -> set[str]:
        return {self.task, *self.also}


def known_wrong(lab: Lab) -> list[KnownWrong]:
    """What `grader/known_wrong/<lab>` holds. Raises VariantError."""
    return [
        _read_wrong(path, lab) for path in sorted((GRADER / "known_wrong" / lab.key).glob("*.toml"))
    ]


def _read_wrong(path: Path, lab: Lab) -> KnownWrong:
    table = tomllib.loads(path.read_text("utf-8"))
    keys = {"misconception", "task", "also", "says", "edit"}
    if table.keys() - {"kind"} != keys:
        raise VariantError(
            f"{_shown(path)}: expected the keys {sorted(keys)}, found {sorted(table)}"
        )
    ids = {task.id for task in lab.tasks}
    if unknown := {table["task"], *table["also"]} - ids:
        raise VariantError(f"{_shown(path)}: lab {lab.key} has no task {sorted(unknown)}")
    edits = tuple((edit["file"], edit["old"], edit["new"]) for edit in table["edit"])
    kind = table.get("kind", [])
    return KnownWrong(
        path.stem,
        table["misconception"],
        table["task"],
        tuple(table["also"]),
        table["says"],
        edits,
        (kind,) if isinstance(kind, str) else tuple(kind),
    )


def known_right(lab: Lab) -> list[Path]:
    """The folders of `grader/known_right/<lab>`, each with the files that differ from the reference."""
    base = GRADER / "known_right" / lab.key
    return sorted(path for path in base.glob("*") if path.is_dir() and path.name != "__pycache__")


def reference_folder(lab: Lab) -> Path:
    return ROOT / "solutions" / lab.key


def write_stub(lab: Lab, into: Path, written: Collection[str] = ()) -> Path:
    """The lab as a learner first finds it, whatever has become of it in `labs` since. written: tasks
    that hold the reference already."""
    for path, text in generate(ROOT, written).items():
        if path.parts[1] == lab.key:
            file = into / Path(*path.parts[2:])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    return into


def write_wrong(wrong: KnownWrong, lab: Lab, into: Path) -> Path:
    """The reference with the edits of a known mistake. Raises VariantError if they do not fit."""
    shutil.copytree(reference_folder(lab), into, ignore=IGNORED)
    for name, old, new in wrong.edits:
        file = into / name
        text = file.read_text("utf-8") if file.is_file() else ""
        if (count := text.count(old)) != 1:
            raise VariantError(
                f"known_wrong/{lab.key}/{wrong.name}.toml: `old` must occur once in {name}, "
                f"not {count} times"
            )
        file.write_text(text.replace(old, new), "utf-8")
    return into


def write_right(folder: Path, lab: Lab, into: Path) -> Path:
    """The reference with another design laid over it."""
    shutil.copytree(reference_folder(lab), into, ignore=IGNORED)
    shutil.copytree(folder, into, ignore=IGNORED, dirs_exist_ok=True)
    return into


def _shown(path: Path) -> str:
    return path.relative_to(GRADER).as_posix()
