"""Translated and worn phrases, each with what to write instead: python -m book.tools.phrases [FILE ...]

`book/phrases.toml` has the phrases. Code, mathematics, link targets and directives are not read, and in
a data file comments are not. `book/phrases_left.toml` has, by file, how many are still allowed. It only
shrinks: `--shrink` lowers each number to what is there, and never adds a file or raises a number.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from book.tools.fences import FENCE
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.system.streams import sound_streams

PHRASES = ROOT / "book/phrases.toml"
LEFT = ROOT / "book/phrases_left.toml"
FOLDERS = (
    "book/src/**/*.md",
    "book/quizzes/*.toml",
    "book/exercises/*.toml",
    "book/figures/*.toml",
    "book/traces/*.json",
    "grader/hints/*.toml",
)
NO_PROSE = re.compile(
    r"<!--.*?-->|<svg\b.*?</svg>|`+[^`]+`+|\$\$.*?\$\$|(?<!\\)\$[^$\n]+\$|\{\{.*?\}\}"
    r"|\]\([^)]*\)|https?://\S+|<[^>]+>|\{#[^}]*\}",
    re.S,
)
COMMENT = re.compile(r"^\s*#.*$", re.M)  # of a data file


@dataclass(frozen=True, slots=True)
class Phrase:
    """One entry of the list: what to look for, what to write instead, and where it is allowed."""

    find: re.Pattern[str]
    write: str
    why: str
    limit: int
    defined_in: frozenset[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A phrase in a file, `path` relative to the root."""

    path: str
    line: int
    words: str
    phrase: Phrase

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.words}': write {self.phrase.write}"


def main() -> int:
    """Prints each finding; exit status 1 if a file has more than it is allowed."""
    arguments = sys.argv[1:]
    if arguments == ["--shrink"]:
        return shrink()
    asked = [Path(name).resolve() for name in arguments]
    findings = {name: found for name, found in all_findings(asked or None).items() if found}
    left = allowances()
    for name, found in findings.items():
        if asked or len(found) > left.get(name, 0):
            print("\n".join(map(str, found)))
    over = {name for name, found in findings.items() if len(found) > left.get(name, 0)}
    total = sum(map(len, findings.values()))
    print(
        f"{total} phrase(s) to write anew in {len(findings)} file(s), {len(over)} over allowance."
    )
    return int(bool(over))


def shrink() -> int:
    """Writes each file's allowance down to what it needs."""
    found = {name: len(findings) for name, findings in all_findings().items()}
    kept = {name: min(count, found.get(name, 0)) for name, count in allowances().items()}
    write_allowances({name: count for name, count in kept.items() if count})
    return 0


def write_allowances(left: dict[str, int]) -> None:
    """Replaces `book/phrases_left.toml`."""
    lines = [f'"{name}" = {count}\n' for name, count in sorted(left.items())]
    head = (
        "# How many phrases of phrases.toml a file may still hold. Numbers only shrink: --shrink\n"
    )
    LEFT.write_text(head + "".join(lines), "utf-8")


def allowances() -> dict[str, int]:
    """By file: how many findings are let pass."""
    return {name: int(count) for name, count in tomllib.loads(LEFT.read_text("utf-8")).items()}


def phrases() -> list[Phrase]:
    """The list."""
    entries = tomllib.loads(PHRASES.read_text("utf-8"))["phrase"]
    return [
        Phrase(
            find=re.compile(rf"\b(?:{entry['find']})\b".replace(" ", r"\s+"), re.I),
            write=entry["write"],
            why=entry["why"],
            limit=entry.get("limit", 0),
            defined_in=frozenset(entry.get("in", ())),
        )
        for entry in entries
    ]


def sources() -> list[Path]:
    """Every file that the check reads."""
    return sorted(path for pattern in FOLDERS for path in ROOT.glob(pattern))


def all_findings(paths: list[Path] | None = None) -> dict[str, list[Finding]]:
    """By file, relative to the root: what is there beyond each phrase's limit."""
    listed = phrases()
    names = {path: path.relative_to(ROOT).as_posix() for path in paths or sources()}
    return {name: list(findings_in(path, name, listed)) for path, name in names.items()}


def findings_in(path: Path, name: str, listed: list[Phrase]) -> Iterator[Finding]:
    """The findings of one file, phrase by phrase."""
    text = prose_of(path)
    for phrase in listed:
        if path.stem in phrase.defined_in:
            continue
        for found in list(phrase.find.finditer(text))[phrase.limit :]:
            line = text.count("\n", 0, found.start()) + 1
            yield Finding(name, line, " ".join(found[0].split()), phrase)


def prose_of(path: Path) -> str:
    """The file's text with blanks for all that is no prose, every line where it was."""
    text = path.read_text("utf-8")
    text = COMMENT.sub(blanks, text) if path.suffix == ".toml" else FENCE.sub(blanks, text)
    return NO_PROSE.sub(blanks, text)


def blanks(found: re.Match[str]) -> str:
    """A mark that no phrase goes across, and as many line ends as what it replaces."""
    return "·" + "\n" * found[0].count("\n")


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
