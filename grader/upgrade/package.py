"""A learner's package on today's stubs: every file put together, and what could not be."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from grader.upgrade.changes import Change, renamed
from grader.upgrade.emptied import in_todays_form
from grader.upgrade.merge import Carried, carry_over
from grader.upgrade.places import UnreadableError, read_items
from yaie.curriculum.progress import CUDA_SOURCES


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """Something to write that was not there before. line: in the new file, 1-based."""

    file: str
    line: int
    task: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the learner's that is only in the backup. line: in their file, 1-based; 0 for all
    of it. why: a sentence."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Upgraded:
    """files: name in the package -> new text; None for one that is no longer part of it."""

    files: dict[str, str | None]
    open: tuple[OpenPlace, ...]
    left_out: tuple[LeftOut, ...]


def upgrade_package(
    then: Mapping[str, str], mine: Mapping[str, str], now: Mapping[str, str], changes: list[Change]
) -> Upgraded:
    """Put a learner's files on today's stubs. Each: name in the package -> text.

    then: the stubs that they were begun on. now: today's.
    """
    for change in changes:
        then, mine = _under_new_names(then, change), _under_new_names(mine, change)
    files: dict[str, str | None] = {}
    opened: list[OpenPlace] = []
    left_out: list[LeftOut] = []
    for name in sorted(then.keys() | mine.keys() | now.keys()):
        if name not in now:
            files.update(_without_stub(name, then, mine, left_out))
            continue
        if name not in mine or name not in then:
            files[name] = now[name]
            if mine.get(name, now[name]) != now[name]:
                left_out.append(LeftOut(name, 0, "today's package has a file of this name"))
            continue
        try:
            carried = _carried(name, then[name], mine[name], now[name])
        except UnreadableError as error:
            files[name] = now[name]
            left_out.append(LeftOut(name, error.line, f"it cannot be read: {error}"))
            continue
        files[name] = "\n".join(carried.lines) + "\n" if carried.lines else ""
        opened += (OpenPlace(name, line, place.task) for place, line in carried.open)
        left_out += _told(name, carried)
    return Upgraded(files, tuple(opened), tuple(left_out))


def _under_new_names(files: Mapping[str, str], change: Change) -> dict[str, str]:
    return {
        change.files.get(name, name): renamed(text, change.names, PurePath(name))
        for name, text in files.items()
    }


def _without_stub(
    name: str, then: Mapping[str, str], mine: Mapping[str, str], left_out: list[LeftOut]
) -> Iterator[tuple[str, str | None]]:
    """A file that today's package does not have: the learner's own stays, one of ours goes."""
    if name not in mine:
        return
    if name not in then:
        yield name, mine[name]
        return
    yield name, None
    if then[name] != mine[name]:
        left_out.append(LeftOut(name, 0, "today's package has no such file"))


def _carried(name: str, then: str, mine: str, now: str) -> Carried:
    """Raises UnreadableError for files that cannot be taken apart, or do not make a whole again."""
    path = PurePath(name)
    if path.suffix == ".py":
        _parse(mine)
        then, mine = in_todays_form(then, mine, now)
    carried = carry_over(read_items(then, path), read_items(mine, path), read_items(now, path))
    if path.suffix not in CUDA_SOURCES:
        try:
            _parse("\n".join(carried.lines))
        except UnreadableError as error:
            raise UnreadableError(0, f"on today's stub it is not Python ({error})") from None
    return carried


def _parse(text: str) -> None:
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(error.lineno or 1, error.msg) from None


def _told(name: str, carried: Carried) -> Iterator[LeftOut]:
    for left in carried.left:
        first = next(line.strip() for line in left.lines if line.strip())
        yield LeftOut(name, left.line, f"what stood around it has changed: {first}")


def read_package(folder: Path, files: list[Path]) -> dict[str, str]:
    """Name in the package -> text. Bytes that are no text are told by their replacement."""
    return {
        file.relative_to(folder).as_posix(): file.read_text("utf-8", "replace") for file in files
    }
