"""The console blocks of a chapter: their commands, and what stands below each.

`book/README.md` has the rules of a block.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from book.tools.fences import FENCE
from book.tools.mdbook import ROOT

SOURCE = ROOT / "book/src"
REASONS = ("installs", "browser", "interactive", "network", "gpu", "long")
PORT = "8000"  # what a chapter writes for the server's port
# Directly above a block: what its reader does by hand before, say in an editor.
BEFORE = re.compile(r"<!-- before: (?P<command>[^\n]+) -->\n\Z")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ConsoleError(ValueError):
    """A block that breaks the rules; the message begins with its chapter and line."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command and what stands below it. line: of the `$`, counted from 1 in the chapter's file."""

    text: str
    expected: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """One fence. solved: labs that are filled in first. unrun: why it is not run, or empty.

    mistake: of `grader/known_wrong`, made in the one lab that is filled in. before: a command that is
    run first and not shown, or empty.
    """

    line: int
    commands: tuple[Command, ...]
    server: bool = False
    solved: tuple[str, ...] = ()
    unrun: str = ""
    before: str = ""
    mistake: str = ""


def parse(text: str, name: str) -> list[Block]:
    """The console blocks of a chapter's text. Raises ConsoleError; `name` is the chapter's."""
    return [_block(fence, text, name) for fence in _fences(text)]


def _fences(text: str) -> Iterator[re.Match[str]]:
    return (fence for fence in FENCE.finditer(text) if _options(fence)[0] == "console")


def _options(fence: re.Match[str]) -> list[str]:
    return [option.strip() for option in fence["info"].split(",")]


def _block(fence: re.Match[str], text: str, name: str) -> Block:
    line = text.count("\n", 0, fence.start()) + 1
    where = f"{name}:{line}"
    server, typed, unrun, mistake = False, False, "", ""
    solved: tuple[str, ...] = ()
    for option in _options(fence)[1:]:
        key, _, value = option.partition("=")
        if option == "server":
            server = True
        elif option == "typed":
            typed = True
        elif key == "solved" and value:
            solved = tuple(value.split("+"))
        elif key == "mistake" and value:
            mistake = value
        elif key == "unrun" and value in REASONS:
            unrun = value
        else:
            raise ConsoleError(
                f"{where}: no such option: {option!r}; there are server, typed, solved=LAB+LAB, "
                f"mistake=NAME and unrun=REASON with {', '.join(REASONS)}"
            )
    for lab in solved:
        if not (ROOT / "solutions" / lab / "__init__.py").is_file():
            raise ConsoleError(f"{where}: solved={lab}: there is no such lab")
    if mistake and (len(solved) != 1 or not _mistake_file(solved[0], mistake).is_file()):
        raise ConsoleError(f"{where}: mistake={mistake}: no such file of grader/known_wrong/LAB")
    indent = len(fence["indent"])
    lines = [row[indent:] for row in fence["body"].splitlines()]
    before = BEFORE.search(text, 0, fence.start())
    commands = tuple(_commands(lines, line + 1, where, typed))
    return Block(
        line, commands, server, solved, unrun, before["command"] if before else "", mistake
    )


def _mistake_file(lab: str, name: str) -> Path:
    return ROOT / "grader/known_wrong" / lab / f"{name}.toml"


def _commands(lines: list[str], first: int, where: str, typed: bool) -> Iterator[Command]:
    """Commands with what follows each; a trailing backslash continues a command in the next line.

    typed: lines that begin with "> " go to the command, which prints none of them.
    """
    if not lines or not lines[0].startswith("$ "):
        raise ConsoleError(f"{where}: a console block begins with a command: $ ...")
    at = 0
    while at < len(lines):
        begin = at
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
        text = "\n".join(lines[begin : at + 1])[2:].strip()
        at += 1
        expected = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        rows = lines[expected:at]
        said = [row[2:] for row in rows if typed and row.startswith("> ")]
        if said:
            rows = [row for row in rows if not row.startswith("> ")]
            text = f"printf '%s\\n' {shlex.join(said)} | {text}"
        yield Command(text, tuple(tidy("\n".join(rows))), first + begin)


def tidy(output: str) -> list[str]:
    """The lines that stay on a terminal: no colours, nothing overwritten, no blanks at any end."""
    lines = [_ESCAPE.sub("", row).rstrip().split("\r")[-1].rstrip() for row in output.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def chapters(source: Path | None = None) -> list[str]:
    """Names of the chapters that have console blocks: their paths below `source`, without `.md`."""
    folder = source or SOURCE
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix()
        for path in folder.rglob("*.md")
        if any(_fences(path.read_text("utf-8")))
    )


def read_chapter(name: str, source: Path | None = None) -> list[Block]:
    """The blocks of a chapter by its name."""
    return parse(((source or SOURCE) / f"{name}.md").read_text("utf-8"), name)
