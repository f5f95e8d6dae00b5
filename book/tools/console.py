"""What a chapter's console blocks say, held against what their commands print.

    python -m book.tools.console sampler           run a chapter's blocks, show what differs
    python -m book.tools.console sampler --show    show everything that came out, ready to paste

A chapter is named by its file, with or without `book/src/` and `.md`. Exit status: 0 if every block
is right, 1 if one is not, 2 if the chapter cannot be run. `book/README.md` has the rules of a block.
"""

import argparse
import re
import signal
import sys
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

_UNITS = {
    "time": r"(?:ns|µs|us|ms|s|min|h|seconds?|minutes?|hours?)",
    "rate": r"(?:[kMGT]?i?[A-Za-z]+/s|a second)",
}
_AMOUNT = r"\d[\d,]*(?:\.\d+)?"
_MEASURED = re.compile(
    rf"(?P<before> *)(?<![\w.]){_AMOUNT}(?P<gap> ?)"
    rf"(?:(?P<rate>{_UNITS['rate']})|(?P<time>{_UNITS['time']}))(?![\w/])(?P<after>  +|$)?"
)
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

    before: a command that is run first and not shown, or empty.
    """

    line: int
    commands: tuple[Command, ...]
    server: bool = False
    solved: tuple[str, ...] = ()
    unrun: str = ""
    before: str = ""


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
    server, unrun = False, ""
    solved: tuple[str, ...] = ()
    for option in _options(fence)[1:]:
        key, _, value = option.partition("=")
        if option == "server":
            server = True
        elif key == "solved" and value:
            solved = tuple(value.split("+"))
        elif key == "unrun" and value in REASONS:
            unrun = value
        else:
            raise ConsoleError(
                f"{where}: no such option: {option!r}; there are server, solved=LAB+LAB and "
                f"unrun=REASON with {', '.join(REASONS)}"
            )
    for lab in solved:
        if not (ROOT / "solutions" / lab / "__init__.py").is_file():
            raise ConsoleError(f"{where}: solved={lab}: there is no such lab")
    indent = len(fence["indent"])
    lines = [row[indent:] for row in fence["body"].splitlines()]
    before = BEFORE.search(text, 0, fence.start())
    commands = tuple(_commands(lines, line + 1, where))
    return Block(line, commands, server, solved, unrun, before["command"] if before else "")


def _commands(lines: list[str], first: int, where: str) -> Iterator[Command]:
    """Commands with what follows each; a trailing backslash continues a command in the next line."""
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
        yield Command(text, tuple(tidy("\n".join(lines[expected:at]))), first + begin)


def tidy(output: str) -> list[str]:
    """The lines that stay on a terminal: no colours, nothing overwritten, no blanks at any end."""
    lines = [_ESCAPE.sub("", row).rstrip().split("\r")[-1].rstrip() for row in output.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def matches(expected: tuple[str, ...], got: list[str]) -> bool:
    """Whether an output is the expected one but for `…` and for measured times and rates.

    A line of only `…` stands for any number of lines, also for none.
    """
    pattern = [None if line.strip() == "…" else _pattern(line) for line in expected]
    # reach[j]: the expected lines so far can stand for exactly got[:j].
    reach = [True] + [False] * len(got)
    for line in pattern:
        if line is None:
            first = reach.index(True) if True in reach else len(reach)
            reach = [j >= first for j in range(len(reach))]
        else:
            fits = [line.fullmatch(row) is not None for row in got]
            reach = [False] + [reach[j] and fits[j] for j in range(len(got))]
    return reach[-1]


def _pattern(line: str) -> re.Pattern[str]:
    """An expected line as a pattern; the blanks that align a measured number may vary with it."""
    pieces, end = [], 0
    for found in _MEASURED.finditer(line):
        pieces.append(_literal(line[end : found.start()]))
        unit = _UNITS["rate" if found["rate"] else "time"]
        before = " *" if not line[: found.start()].strip() else " +" if found["before"] else ""
        after = "" if found["after"] is None else " *"
        pieces.append(f"{before}{_AMOUNT}{found['gap']}{unit}{after}")
        end = found.end()
    return re.compile("".join([*pieces, _literal(line[end:])]))


def _literal(text: str) -> str:
    pattern = ".*".join(re.escape(piece) for piece in text.split("…"))
    # "make: *** [Makefile:41: grade] Error 1": a rule may move, and nobody reads the number.
    return re.sub(r"(?<=\[Makefile:)\d+(?=:)", r"\\d+", pattern)


def difference(command: Command, got: list[str], name: str) -> str:
    """What a reader of the failing test needs: where, the command, both outputs side by side."""
    rows = [f"{name}:{command.line}: $ {command.text}"]
    taken = _alignment(command.expected, got)
    for mark, row in taken:
        rows.append(f"  {mark} {row}".rstrip())
    return "\n".join([*rows, "  (- stands in the chapter, + came out)"])


def _alignment(expected: tuple[str, ...], got: list[str]) -> Iterator[tuple[str, str]]:
    """(mark, line): " " for what fits, "-" for what only the chapter has, "+" for what came out."""
    at = 0
    for index, line in enumerate(expected):
        if line.strip() == "…":
            following = expected[index + 1] if index + 1 < len(expected) else None
            stop = _find(following, got, at) if following is not None else len(got)
            at = at if stop is None else stop
            yield " ", line
            continue
        found = _find(line, got, at)
        if found is None:
            yield "-", line
            continue
        yield from (("+", row) for row in got[at:found])
        yield " ", got[found]
        at = found + 1
    yield from (("+", row) for row in got[at:])


def _find(line: str, got: list[str], start: int) -> int | None:
    pattern = _pattern(line)
    fits = (at for at in range(start, len(got)) if pattern.fullmatch(got[at]))
    return next(fits, None)


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


def main(arguments: list[str] | None = None) -> int:
    """Run one chapter for its writer."""
    from book.tools.sandbox import run_chapter  # it reads the labs, which takes a moment

    parser = argparse.ArgumentParser(prog="python -m book.tools.console", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("chapter", help="as sampler, explore/sampler or book/src/sampler.md")
    parser.add_argument(
        "--show", action="store_true", help="all that came out, not only what differs"
    )
    options = parser.parse_args(arguments)
    name = re.sub(r"^(.*/)?book/src/", "", options.chapter).removesuffix(".md")
    wrong = 0
    try:
        blocks = read_chapter(name)
        for result in run_chapter(blocks, name):
            same = matches(result.command.expected, result.output)
            wrong += not same
            if options.show:
                print(f"$ {result.command.text}", *result.output, sep="\n")
            if not same:
                print(difference(result.command, result.output, name))
            verdict = "as written" if same else "DIFFERS"
            print(
                f"[{name}:{result.command.line}: {verdict}, {result.seconds:.1f} s]\n", flush=True
            )
    except (OSError, ConsoleError) as error:
        print(error, file=sys.stderr)
        return 2
    unrun = sum(bool(block.unrun) for block in blocks)
    print(f"{name}: {wrong or 'nothing'} to correct; {unrun} of {len(blocks)} blocks are not run.")
    return 1 if wrong else 0


if __name__ == "__main__":
    # Asked to end, by `timeout` say, it still stops what it started and removes the copy.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
