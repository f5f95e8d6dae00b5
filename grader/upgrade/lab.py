"""One lab carried over: a backup, every file, and the places where something is left to do."""

import ast
from dataclasses import dataclass
from pathlib import Path

from grader.cuda_source import BraceError, find_bodies
from grader.reset import back_up
from grader.stubs import generate
from grader.upgrade.changes import Note, changes_since, stubs_of
from grader.upgrade.package import LeftOut, OpenPlace, read_package, upgrade_package
from yaie.core.errors import ConfigError
from yaie.curriculum.editions import edition_of, is_older
from yaie.curriculum.manifest import ROOT, Lab
from yaie.curriculum.progress import CUDA_SOURCES, SOURCES, Progress, source_files
from yaie.system.files import cannot_write, write_whole


@dataclass(frozen=True, slots=True)
class LabUpgrade:
    """edition: that the package was of. backup: below the root. had: tasks that had passed on it. notes:
    what has changed. open: what is to be written. left_out: what is only in the backup."""

    lab: Lab
    edition: int
    backup: Path
    had: tuple[str, ...]
    notes: tuple[Note, ...]
    open: tuple[OpenPlace, ...]
    left_out: tuple[LeftOut, ...]


def upgrade_lab(lab: Lab, root: Path = ROOT) -> LabUpgrade | None:
    """Carry a learner's package over to today's stubs; None if it is of today's edition.

    Raises ConfigError if the stubs of its edition are not known, or something cannot be written: nothing
    is changed without a backup.
    """
    folder = root / "labs" / lab.key
    edition = edition_of(folder)
    if edition is None or not is_older(lab, edition):
        return None
    changes = changes_since(lab, edition, root)
    today = {path: text for path, text in generate(root).items() if path.parts[1] == lab.key}
    now = {path.relative_to("labs", lab.key).as_posix(): text for path, text in today.items()}
    sources = {name: text for name, text in now.items() if Path(name).suffix in SOURCES}
    mine = read_package(folder, source_files(folder))
    upgraded = upgrade_package(stubs_of(lab, edition, root), mine, sources, changes)
    had = Progress.load(root).passed_tasks(lab, folder)
    backup = back_up(lab, root)
    try:
        _write(folder, {**now, **upgraded.files})
    except OSError as error:
        why = cannot_write(error.filename, error)
        raise ConfigError(f"{why}; your files are in {backup.as_posix()}") from None
    notes = tuple(note for change in changes for note in change.notes)
    return LabUpgrade(lab, edition, backup, had, notes, upgraded.open, upgraded.left_out)


def line_of(note: Note, folder: Path) -> int:
    """Where the function of a note begins in a package, 1-based; 1 if it is not there."""
    file = folder / note.file
    if not file.is_file():
        return 1
    text = file.read_text("utf-8", "replace")
    try:
        if file.suffix in CUDA_SOURCES:
            begins = {body.name: body.begin + 1 for body in reversed(find_bodies(text))}
            return begins.get(note.function, 1)
        node: ast.AST = ast.parse(text)
    except (BraceError, SyntaxError):
        return 1
    for name in filter(None, note.function.split(".")):
        inner = [child for child in ast.walk(node) if getattr(child, "name", None) == name]
        if not inner:
            return 1
        node = inner[0]
    return getattr(node, "lineno", 1)


def _write(folder: Path, files: dict[str, str | None]) -> None:
    for name, text in files.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, text)
