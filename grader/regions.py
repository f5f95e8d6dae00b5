"""Solution regions: the marked parts of a source file that a stub replaces.

    # BEGIN SOLUTION 3.2
    ...the code that a learner writes...
    # END SOLUTION

The comment may be any of `# ...`, `// ...` and `/* ... */`. 3.2 is the task, as the chapter and
the grader number it. Regions do not nest. A region inside a function becomes a statement that names
lab, task and chapter: a raise in Python, `NOT_IMPLEMENTED("...");` in CUDA C++. Anywhere else it leaves
a comment: a helper that only the reference needs is simply gone, since nothing may stop the import.

A file whose first line is `# ORACLE` or `// ORACLE` has no stub: it answers a task in other words.
Imports of it stay in `solutions`, or are turned to it.
"""

import ast
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePath
from typing import NoReturn

from grader.cuda_source import BraceError, find_bodies
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES

MARKER = re.compile(
    r"^(?P<indent>\s*)(?P<open>#|//|/\*)\s*(?P<edge>BEGIN|END) SOLUTION\b(?P<rest>.*)$"
)
MENTION = re.compile(r"\b(BEGIN|END) SOLUTION\b")
TASK = re.compile(r"\d+(\.\d+)?")
COMMENT = re.compile(r"\s*(#|//|/\*|\*)")
ORACLE = re.compile(r"(#|//) ORACLE\b")
IMPORTED = re.compile(
    r"^(?P<indent>[ \t]*)from \.(?P<module>\w*) import (?P<names>.*)", re.MULTILINE
)


class MarkerError(ValueError):
    """A marker that cannot be right. The message begins with file and line."""


@dataclass(frozen=True, slots=True)
class Region:
    """Lines begin..end of a file, 0-based, both markers included.

    margin: what a comment there begins with, indentation included. size: lines of code between.
    """

    task: str
    begin: int
    end: int
    margin: str
    size: int

    @property
    def indent(self) -> str:
        return self.margin.rstrip("#/")


def is_oracle(source: str, path: PurePath) -> bool:
    """Whether a file stays out of the stub's package. Raises MarkerError if it holds a task too."""
    if not ORACLE.match(source):
        return False
    if find_regions(source.splitlines(), path):
        _fail(path, 0, "an oracle has no stub, so no region in it can be a learner's task")
    return True


def make_stub(
    source: str,
    path: PurePath,
    lab: Lab,
    oracles: Collection[PurePath] = frozenset(),
    written: Collection[str] = (),
) -> str:
    """The stub of one file of `solutions`: regions replaced, imports turned to `labs`.

    path: below the root, as errors name it. oracles: the files that have no stub, below the root too.
    written: tasks whose regions hold the reference, as if a learner had typed it in.
    Raises MarkerError for markers that are unbalanced, nested or unreadable, and when what is left is
    not Python.
    """
    lines = source.splitlines()
    regions = find_regions(lines, path)
    is_python, is_cuda = path.suffix == ".py", path.suffix in CUDA_SOURCES
    functions: list[tuple[int, int]] = []
    if regions and is_python:
        functions = _spans_in_python(source, path)
    elif regions and is_cuda:
        functions = _spans_in_cuda(source, path)
    out: list[str] = _header(regions, lab)
    position = 0
    for region in regions:
        out += lines[position : region.begin]
        if region.task in written:
            out += lines[region.begin + 1 : region.end]
            position = region.end + 1
            continue
        inside = any(first <= region.begin < last for first, last in functions)
        out += _placeholder(region, lab, stops=inside, is_cuda=is_cuda)
        position = region.end + 1
    out += lines[position:]
    stub = _turn_to_labs("\n".join(out) + "\n", path, oracles) if lines else ""
    if is_python:
        _parse(stub, path, of=" of its stub")
    return stub


def find_regions(lines: list[str], path: PurePath) -> list[Region]:
    """The regions of a file in order of appearance. Raises MarkerError."""
    regions: list[Region] = []
    opened: tuple[int, str, str] | None = None  # line, task, margin
    for number, line in enumerate(lines):
        if not MENTION.search(line):
            continue
        edge, task, margin = _read_marker(line, path, number)
        if edge == "BEGIN":
            if opened:
                _fail(path, number, f"a region inside the one that begins on line {opened[0] + 1}")
            opened = (number, task, margin)
            continue
        if not opened:
            _fail(path, number, "END SOLUTION without a BEGIN SOLUTION before it")
        begin, begun_task, margin = opened
        if task and task != begun_task:
            _fail(path, number, f"END SOLUTION {task} closes region {begun_task}")
        size = _count_code(lines[begin + 1 : number])
        if not size:
            _fail(path, begin, f"region {begun_task} holds no code")
        regions.append(Region(begun_task, begin, number, margin, size))
        opened = None
    if opened:
        _fail(path, opened[0], f"region {opened[1]} has no END SOLUTION")
    return regions


def _read_marker(line: str, path: PurePath, number: int) -> tuple[str, str, str]:
    """Edge, task (may be empty at an END) and margin of a marker line."""
    found = MARKER.match(line)
    if not found:
        _fail(path, number, "a solution marker stands alone in a comment: # BEGIN SOLUTION 3.2")
    task = found["rest"].removesuffix("*/").strip()
    if not TASK.fullmatch(task) and (task or found["edge"] == "BEGIN"):
        _fail(path, number, f"expected a task number such as 3.2, found {task!r}")
    comment = "#" if found["open"] == "#" else "//"
    return found["edge"], task, found["indent"] + comment


def _fail(path: PurePath, number: int, message: str) -> NoReturn:
    raise MarkerError(f"{path}:{number + 1}: {message}")


def _count_code(lines: list[str]) -> int:
    return sum(1 for line in lines if line.strip() and not COMMENT.match(line))


def _header(regions: list[Region], lab: Lab) -> list[str]:
    """One line above a file that holds tasks. A comment leaves a module's docstring a docstring."""
    tasks = sorted({region.task for region in regions}, key=lambda id: [*map(int, id.split("."))])
    if not tasks:
        return []
    noun = "task" if len(tasks) == 1 else "tasks"
    comment = regions[0].margin.strip()
    edition = f" (edition {lab.edition})" if lab.edition > 1 else ""
    numbers = ", ".join(tasks)
    return [f"{comment} Lab {lab.number}, your part{edition}: {noun} {numbers}. The rest is given."]


def _placeholder(region: Region, lab: Lab, *, stops: bool, is_cuda: bool) -> list[str]:
    lines = "1 line" if region.size == 1 else f"{region.size} lines"
    todo = f"{region.margin} TODO {region.task}: your code here (the reference: {lines})."
    if not stops and not is_cuda:
        room = f"TODO {region.task}, if you like: helpers of your own (the reference: {lines})."
        return [f"{region.margin} {room}"]
    if not stops:
        return [todo]
    message = f"{lab.key} task {region.task}: not implemented yet; see chapter {lab.subject}"
    quoted = json.dumps(message, ensure_ascii=False)
    if is_cuda:
        return [todo, f"{region.indent}NOT_IMPLEMENTED({quoted});"]
    return [
        todo,
        f"{region.indent}raise NotImplementedError(",
        f"{region.indent}    {quoted}",
        f"{region.indent})",
    ]


def _spans_in_python(source: str, path: PurePath) -> list[tuple[int, int]]:
    """First and last line of each function, 0-based. Markers are comments: the source parses."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for node in ast.walk(_parse(source, path)) if isinstance(node, functions))
    return [(node.lineno - 1, (node.end_lineno or node.lineno) - 1) for node in found]


def _spans_in_cuda(source: str, path: PurePath) -> list[tuple[int, int]]:
    """First and last line of each function's body, 0-based."""
    try:
        return [(body.begin, body.end) for body in find_bodies(source)]
    except BraceError as error:
        _fail(path, error.line, str(error))


def _turn_to_labs(source: str, path: PurePath, oracles: Collection[PurePath]) -> str:
    """A learner's part imports, or includes, its siblings from `labs`; an oracle from `solutions`."""
    if path.suffix in CUDA_SOURCES:
        stay = "".join(rf"(?!{re.escape('/'.join(o.parts[1:]))}\b)" for o in sorted(oracles))
        return re.sub(rf"\bsolutions/{stay}(?=[a-z_])", "labs/", source)
    modules = {oracle.with_suffix("") for oracle in oracles if oracle.suffix == ".py"}
    source = _oracles_by_full_name(source, path, modules)
    stay = "".join(rf"(?!{re.escape('.'.join(m.parts[1:]))}\b)" for m in sorted(modules))
    return re.sub(rf"\bsolutions\.{stay}(?=[a-z_])", "labs.", source)


def _oracles_by_full_name(source: str, path: PurePath, modules: Collection[PurePath]) -> str:
    """Relative imports of an oracle become absolute ones."""

    def absolute(found: "re.Match[str]") -> str:
        module = path.parent / found["module"]
        names = [name.split()[0] for name in found["names"].split(",") if name.strip()]
        if not found["module"] and any(module / name in modules for name in names):
            line = source.count("\n", 0, found.start())
            _fail(path, line, "import from an oracle by its name: from .naive import ...")
        if module not in modules:
            return found[0]
        return f"{found['indent']}from {'.'.join(module.parts)} import {found['names']}"

    return IMPORTED.sub(absolute, source)


def _parse(source: str, path: PurePath, of: str = "") -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise MarkerError(
            f"{path}: line {error.lineno}{of} is not Python: {error.msg}: {line}"
        ) from None
