"""What a chapter's console blocks say, held against what their commands print.

    python -m book.tools.console labs/sampler           run a page's blocks, show what differs
    python -m book.tools.console labs/sampler --show    show everything that came out, ready to paste

A page is named by its file, with or without `book/src/` and `.md`. Exit status: 0 if every block
is right, 1 if one is not, 2 if the chapter cannot be run. `book/README.md` has the rules of a block.
"""

import argparse
import re
import signal
import sys
from collections.abc import Iterator

from book.tools.blocks import Command, ConsoleError, read_chapter
from book.tools.sandbox import run_chapter

_UNITS = {
    "time": r"(?:ns|µs|us|ms|s|min|h|seconds?|minutes?|hours?)",
    "rate": r"(?:[kMGT]?i?[A-Za-z]+/s|a second)",
}
_AMOUNT = r"\d[\d,]*(?:\.\d+)?"
_MEASURED = re.compile(
    rf"(?P<before> *)(?<![\w.]){_AMOUNT}(?P<gap> ?)"
    rf"(?:(?P<rate>{_UNITS['rate']})|(?P<time>{_UNITS['time']}))(?![\w/])(?P<after>  +|$)?"
)


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
    # "make: *** [Makefile:41: grade] Error 1": a rule may move, and the number does not matter.
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


def main(arguments: list[str] | None = None) -> int:
    """Run one chapter for its writer."""
    parser = argparse.ArgumentParser(prog="python -m book.tools.console", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("chapter", help="as engine, labs/sampler or book/src/labs/sampler.md")
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
