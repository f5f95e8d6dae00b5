"""`make reset`: a lab as it was generated; the learner's files are kept in a backup."""

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from grader.stubs import generate
from yaie.curriculum.manifest import ROOT, Lab

BACKUPS = Path(".yaie/backups")


@dataclass(frozen=True, slots=True)
class Reset:
    """restored: files that are stubs again. backup: where the learner's lie, None if there were none.
    Both below the root."""

    restored: tuple[Path, ...]
    backup: Path | None

    def describe(self, lab: Lab) -> str:
        if not self.restored:
            return f"labs/{lab.key} is as it was generated: nothing to do."
        kept = f" Your files are in {self.backup.as_posix()}." if self.backup else ""
        noun = "file is a stub" if len(self.restored) == 1 else "files are stubs"
        return f"{len(self.restored)} {noun} again.{kept}"


def reset_lab(lab: Lab, root: Path = ROOT) -> Reset:
    """Restore the generated files of a lab; files that were never generated stay where they are."""
    stubs = {path: text for path, text in generate(root).items() if path.parts[1] == lab.key}
    changed = tuple(path for path, text in stubs.items() if _text(root / path) != text)
    folder = root / "labs" / lab.key
    backup = None
    if any((root / path).exists() for path in changed):
        backup = _free_name(root / BACKUPS, f"{lab.key}-{datetime.now():%Y%m%d-%H%M%S}")
        shutil.copytree(folder, backup, ignore=shutil.ignore_patterns("__pycache__"))
        backup = backup.relative_to(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(stubs[path], "utf-8")
    return Reset(changed, backup)


def _text(file: Path) -> str | None:
    """None if it is no text file: then it is not what was generated."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _free_name(folder: Path, name: str) -> Path:
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path
