"""Measured numbers that stand in the text as they were typed: python -m book.tools.typed

A figure of `book/evidence` is asked for with `{{#value}}`, so that a new run changes every place where
it is told. A number typed beside such a figure stays behind. It is a fault

- in a column of a table whose other cells are asked for, but not in a row of sums;
- in a comparison with one that is asked for: `{{#value ...}} ms in place of 1.44`;
- in a sentence that asks for a time or a rate, if it is a time or a rate itself;
- anywhere, with four digits or more and a unit, if a file that the page asks has just this number in
  this unit, or `ceilings.json` has it.

Arithmetic is typed: formulas, a sentence with a sign of arithmetic in it, and one whose only figures are
ceilings, from which limits are computed.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.tools.evidence import EvidenceError, load
from book.tools.fences import FENCE
from book.tools.mdbook import ROOT
from yaie.system.streams import sound_streams

SOURCES = ROOT / "book/src"
CEILINGS = "ceilings"
TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
RATES = {"GB/s": 1e9, "TB/s": 1e12, "GFLOP/s": 1e9, "TFLOP/s": 1e12}
UNITS = {**TIMES, **RATES, "tokens/s": 1.0, "tokens a second": 1.0}
NAMED = {  # how a key of a file says the unit of its number
    "seconds": r"(^|_)(s|seconds)$",
    "ms": r"(^|_)ms(_|$)",
    "us": r"(^|_)us(_|$)",
    "bytes": r"(^|_)(gbs|gb_per_s|bytes_per_second)$",
    "flops": r"(^|_)(tflops|gflops|flops_per_second)$",
    "tokens": r"tokens_(a|per)_second",
}
BASE = {"seconds": 1.0, "ms": 1e-3, "us": 1e-6, "tokens": 1.0}
PER = {"gbs": 1e9, "gb_per_s": 1e9, "tflops": 1e12, "gflops": 1e9}

ASKED = re.compile(r"\{\{#(?:value|spread)\s+(?P<file>\w+):[^}]*?\s[,+]*(?:\.\d+)?[fde]?\}\}", re.S)
"""A number in a form; what a file says in words has none."""
FILE = re.compile(r"\{\{#(?:value|spread)\s+(?P<file>\w+):")
NO_TEXT = re.compile(
    r"\$\$.*?\$\$|(?<!\\)\$[^$\n]+\$|<!--.*?-->|<[^>]+>|(?<=\])\([^)]*\)|https?://\S+", re.S
)
CODE = re.compile(r"`[^`]*`")
NUMBER = r"(?<![\w.,{])(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?![\d\w]|[.,]\d)"
TYPED = re.compile(rf"{NUMBER}(?=\s(?:to\s[\d.,]+\s)?(?P<unit>{'|'.join(UNITS)})\b)")
MARK, CEILING = "\ue000", "\ue001"
"""Where a figure is asked for: one that was measured, and a ceiling."""
SIGN = re.compile(r"[=·×÷+]|\d\s/\s\d|\bat least\b")
COMPARED = re.compile(
    rf"{MARK}[^{MARK}{CEILING}.;:|]{{0,40}}?"
    rf"\b(?:in place of|instead of|against|beside|down from|up from)\s(?:\w+\s)?{NUMBER}"
)
SUMS = {"all", "sum", "together", "total"}
RULE = re.compile(r"\|[-| :]+\|?$")


def typed_numbers(text: str) -> Iterator[str]:
    """What is wrong with one page's Markdown, a line for each number."""
    names = {found["file"] for found in FILE.finditer(text)}
    if not names:
        return
    prose = NO_TEXT.sub(" ", FENCE.sub("\n", text))
    prose = ASKED.sub(lambda found: CEILING if found["file"] == CEILINGS else MARK, prose)
    prose = CODE.sub("`", re.sub(r"\{\{.*?\}\}", " ", prose, flags=re.S))
    lines = prose.split("\n")
    yield from _in_columns(lines)
    for sentence in _sentences(lines):
        yield from _beside(sentence)
    known = _figures(names | {CEILINGS})
    for found in TYPED.finditer(prose):
        if digits(found["number"]) >= 4 and _is_one_of(found["number"], found["unit"], known):
            yield f"a figure of a file, to be asked for: {found[0]} {found['unit']}"


def digits(number: str) -> int:
    """How many significant digits a number is written with."""
    return len(re.sub(r"[,.]", "", number).strip("0"))


def _in_columns(lines: list[str]) -> Iterator[str]:
    for start, line in enumerate(lines):
        if RULE.match(line) and line.startswith("|"):
            rows = []
            for below in lines[start + 1 :]:
                if not below.startswith("|"):
                    break
                rows.append([cell.strip() for cell in below.strip("|").split("|")])
            yield from _mixed(rows)


def _mixed(rows: list[list[str]]) -> Iterator[str]:
    rows = [row for row in rows if row[0].strip("*") not in SUMS]
    for column in range(1, max(map(len, rows), default=0)):
        cells = [row[column] for row in rows if column < len(row)]
        if any(MARK in cell for cell in cells):
            for cell in cells:
                if MARK not in cell and re.search(NUMBER, cell):
                    yield f"a cell is typed where others are asked for: {cell!r}"


def _sentences(lines: list[str]) -> Iterator[str]:
    prose = "\n".join("" if line.startswith("|") else line for line in lines)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|:)\s)", prose):
        yield from re.split(r"(?<=[.:;?!])\s+", " ".join(paragraph.split()))


def _beside(sentence: str) -> Iterator[str]:
    if MARK not in sentence or SIGN.search(sentence):
        return
    for found in COMPARED.finditer(sentence):
        yield f"compared with a figure that is asked for: {found['number']} in {_shown(sentence)!r}"
    units = re.findall(rf"{MARK}\s(?P<unit>{'|'.join(UNITS)})\b", sentence)
    kinds = {_kind(unit) for unit in units}
    for found in TYPED.finditer(sentence):
        if _kind(found["unit"]) in kinds:
            told = f"{found[0]} {found['unit']} in {_shown(sentence)!r}"
            yield f"beside a figure that is asked for: {told}"


def _kind(unit: str) -> str:
    return "time" if unit in TIMES else "rate"


def _shown(sentence: str) -> str:
    return sentence.replace(MARK, "…").replace(CEILING, "…")[:90]


def _figures(names: set[str]) -> dict[str, set[float]]:
    """By "time" and "rate", the numbers of these files in seconds, bytes, operations and tokens."""
    known: dict[str, set[float]] = {"time": set(), "rate": set()}
    for name in names:
        try:
            table = load(name)
        except EvidenceError:  # the directive that names it is the fault
            continue
        for key, number in _leaves(table, ""):
            for what, pattern in NAMED.items():
                if found := re.search(pattern, key):
                    factor = BASE.get(what) or PER.get(found[0].strip("_"), 1.0)
                    known["time" if what in ("seconds", "ms", "us") else "rate"].add(
                        number * factor
                    )
    return known


def _leaves(table: Any, key: str) -> Iterator[tuple[str, float]]:
    """Each number with the last key above it that is a word; runs of one measurement are left out."""
    if isinstance(table, dict):
        for name, item in table.items():
            if name not in ("machine", "measures", "recorded", "args"):
                yield from _leaves(
                    item, key if isinstance(item, int | float) and _runs(name) else name
                )
    elif isinstance(table, float | int) and not isinstance(table, bool):
        yield key, float(table)


def _runs(name: str) -> bool:
    return name in ("median", "low", "high", "p50", "p99") or name.isdigit()


def _is_one_of(number: str, unit: str, known: dict[str, set[float]]) -> bool:
    value, size = float(number.replace(",", "")), UNITS[unit]
    half = 0.5 * 10 ** -len(number.partition(".")[2])
    return any(abs(figure / size - value) <= half for figure in known[_kind(unit)])


def faults(sources: Path = SOURCES) -> list[str]:
    """Every page's, with its name."""
    pages = sorted([*sources.glob("*.md"), *sources.glob("labs/*.md")])
    return [
        f"{page.relative_to(sources).as_posix()}: {fault}"
        for page in pages
        for fault in typed_numbers(page.read_text("utf-8"))
    ]


def main() -> int:
    """Print what is typed; exit status 1 if anything is."""
    found = faults()
    print("\n".join(found) or "Every measured number is asked for.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
