"""`make reset`: a lab as it was generated; the learner's files are kept in a backup."""

import shutil
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from grader.stubs import generate
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab
from yaie.system.files import cannot_write, write_whole

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
    """Restore the generated files of a lab; files that were never generated stay where they are.

    Raises ConfigError if something cannot be written: nothing is restored without a backup, and each
    file is either as it was or a stub.
    """
    stubs = {path: text for path, text in generate(root).items() if path.parts[1] == lab.key}
    changed = tuple(path for path, text in stubs.items() if _text(root / path) != text)
    backup = None
    if any((root / path).exists() for path in changed):
        backup = back_up(lab, root)
    for path in changed:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(root / path, stubs[path])
        except OSError as error:
            kept = f"; your files are in {backup.as_posix()}" if backup else ""
            raise ConfigError(f"{cannot_write(path, error)}{kept}") from None
    return Reset(changed, backup)


def back_up(lab: Lab, root: Path = ROOT) -> Path:
    """Copy a learner's package; returns where to, below the root. Raises ConfigError, and then leaves no
    half of a copy."""
    backup = None
    try:
        backup = _new_folder(root / BACKUPS, f"{lab.key}-{datetime.now():%Y%m%d-%H%M%S}")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "labs" / lab.key, backup, ignore=ignored, dirs_exist_ok=True)
        return backup.relative_to(root)
    except OSError as error:
        if backup is not None:
            shutil.rmtree(backup, ignore_errors=True)
        why = cannot_write(BACKUPS, error)
        raise ConfigError(f"{why}. Nothing was changed: your files have no backup.") from None


def _new_folder(parent: Path, name: str) -> Path:
    """One that was not there: two resets in one second have a backup each. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = parent / (f"{name}-{number}" if number > 1 else name)
        try:
            path.mkdir()
            return path
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def _text(file: Path) -> str | None:
    """None if it is no text file: then it is not what was generated."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
