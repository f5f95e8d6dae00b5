"""What each edition of a lab's contract changed, from `changes.toml`, and the stubs of editions before.

    [[change]]
    lab = "cuda_graphs"
    edition = 2                              # the one that this leads to
    names = { seat = "row" }                 # identifiers that a learner's code may use
    files = { "steps.py" = "runner.py" }     # files with another name now

    [[change.note]]                          # said where a task does not pass any more
    task = "17.1"
    place = "runner.py:GraphRunner.run"      # file and function, in today's stub
    text = "it is given the chunk's tokens, too; there may be none"

The stubs of edition 1 lie in `stubs/cuda_graphs-1.zip`; `grader.upgrade.keep` puts them there.
"""

import re
import tokenize
import zipfile
from dataclasses import dataclass
from io import StringIO
from pathlib import Path, PurePath
from typing import Any

from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab
from yaie.curriculum.progress import CUDA_SOURCES

CHANGES = Path("grader/upgrade/changes.toml")
STUBS = Path("grader/upgrade/stubs")


@dataclass(frozen=True, slots=True)
class Note:
    """What a learner must know of a place that has changed. function: dotted, "" for the whole file."""

    task: str
    file: str
    function: str
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """From one edition of a lab to the next."""

    lab: str
    edition: int
    names: dict[str, str]
    files: dict[str, str]
    notes: tuple[Note, ...]


def changes_since(lab: Lab, edition: int, root: Path = ROOT) -> list[Change]:
    """What happened to a lab after an edition, in order. Raises ConfigError if a step is missing."""
    table = tomllib.loads((root / CHANGES).read_text("utf-8"))
    found = {
        change.edition: change
        for change in map(_change, table.get("change", []))
        if change.lab == lab.key
    }
    wanted = range(edition + 1, lab.edition + 1)
    if missing := [number for number in wanted if number not in found]:
        raise ConfigError(f"{CHANGES} does not say what edition {missing[0]} of {lab.key} changed")
    return [found[number] for number in wanted]


def stubs_of(lab: Lab, edition: int, root: Path = ROOT) -> dict[str, str]:
    """Name of a file in the package -> text, as an edition was generated. Raises ConfigError."""
    path = kept_stubs(lab.key, edition, root)
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {path.relative_to(root).as_posix()}, the stubs that labs/{lab.key} was "
            f"begun on: {error}. Take it from a fresh clone."
        ) from None


def kept_stubs(lab: str, edition: int, root: Path = ROOT) -> Path:
    """Where the stubs of an edition are kept."""
    return root / STUBS / f"{lab}-{edition}.zip"


def renamed(text: str, names: dict[str, str], path: PurePath) -> str:
    """A source with other identifiers; comments and strings stay as they are. What cannot be read as
    tokens stays whole."""
    if not names:
        return text
    if path.suffix in CUDA_SOURCES:
        known = "|".join(map(re.escape, names))
        return re.sub(rf"\b(?:{known})\b", lambda found: names[found[0]], text)
    lines = text.splitlines(keepends=True)
    try:
        tokens = [
            token
            for token in tokenize.generate_tokens(StringIO(text).readline)
            if token.type == tokenize.NAME and token.string in names
        ]
    except (tokenize.TokenError, SyntaxError):
        return text
    for token in reversed(tokens):
        row, column = token.start
        line = lines[row - 1]
        new = names[token.string]
        lines[row - 1] = line[:column] + new + line[column + len(token.string) :]
    return "".join(lines)


def _change(entry: dict[str, Any]) -> Change:
    notes = tuple(_note(note) for note in entry.get("note", []))
    return Change(
        str(entry["lab"]),
        int(entry["edition"]),
        dict(entry.get("names", {})),
        dict(entry.get("files", {})),
        notes,
    )


def _note(entry: dict[str, str]) -> Note:
    file, _, function = entry["place"].partition(":")
    return Note(entry["task"], file, function, entry["text"])
