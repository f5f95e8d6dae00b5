"""`make reset`: a lab as it was generated; the learner's files are kept in a backup."""

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from grader.stubs import generate
from yaie.core.errors import ConfigError
from yaie.core.files import cannot_write, write_whole
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
    """Restore the generated files of a lab; files that were never generated stay where they are.

    Raises ConfigError if something cannot be written: nothing is restored without a backup, and each
    file is either as it was or a stub.
    """
    stubs = {path: text for path, text in generate(root).items() if path.parts[1] == lab.key}
    changed = tuple(path for path, text in stubs.items() if _text(root / path) != text)
    folder = root / "labs" / lab.key
    backup = None
    if any((root / path).exists() for path in changed):
        backup = _free_name(root / BACKUPS, f"{lab.key}-{datetime.now():%Y%m%d-%H%M%S}")
        _copy(folder, backup)
        backup = backup.relative_to(root)
    for path in changed:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(root / path, stubs[path])
        except OSError as error:
            kept = f"; your files are in {backup.as_posix()}" if backup else ""
            raise ConfigError(f"{cannot_write(path, error)}{kept}") from None
    return Reset(changed, backup)


def _copy(folder: Path, backup: Path) -> None:
    """Raises ConfigError, and then leaves no half of a backup."""
    try:
        shutil.copytree(folder, backup, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        shutil.rmtree(backup, ignore_errors=True)
        why = cannot_write(BACKUPS, error)
        raise ConfigError(f"{why}. Nothing was reset: your files have no backup.") from None


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
