"""A stub as lines with places between them: what a learner writes, told apart by where it stands.

A place is known by its function and its number there, and not by its task or its text: tasks are
numbered anew, and the reference's number of lines changes.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from grader.cuda_source import BraceError, find_bodies
from yaie.curriculum.editions import HEADER
from yaie.curriculum.progress import CUDA_SOURCES

TODO = re.compile(
    r"^(?P<indent>\s*)(?:#|//) TODO (?P<task>\d+\.\d+)"
    r"(?:: your code here|, if you like: helpers of your own) \(the reference: \d+ lines?\)\.$"
)
"""The first line of a place, as `grader.regions` writes it."""
RAISES = (
    re.compile(r"^\s*raise NotImplementedError\($"),
    re.compile(r'^\s*".*not implemented yet; see chapter .*"$'),
    re.compile(r"^\s*\)$"),
)
STOPS_IN_CUDA = re.compile(r'^\s*NOT_IMPLEMENTED\(".*"\);$')


class UnreadableError(ValueError):
    """A file whose functions cannot be found. line: 1-based; 0 if it is none of the file's."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Place:
    """An open place of a stub, or its first line that numbers the tasks. Two are equal if they stand
    in the same place.

    scope: the function or class around it, "" for the file, "*" for the first line. number: among the
    places of this scope. stops: whether it raises; who removed that alone has filled it. task and
    lines: its task's id and text, "" for the first line.
    """

    scope: str
    number: int
    stops: bool
    task: str = field(compare=False)
    lines: tuple[str, ...] = field(compare=False)

    @property
    def indent(self) -> str:
        first = self.lines[0]
        return first[: len(first) - len(first.lstrip())]


Item = str | Place
"""A line of given code, or a place."""


def read_items(text: str, path: PurePath) -> list[Item]:
    """A file as lines and places. Raises UnreadableError for one whose functions cannot be told."""
    lines = text.splitlines()
    scopes = _scopes(text, path) if any(TODO.match(line) for line in lines) else []
    items: list[Item] = []
    numbers: Counter[str] = Counter()
    at = 0
    while at < len(lines):
        todo = TODO.match(lines[at])
        if todo:
            end = at + 1 + _size_of_stop(lines[at + 1 :])
            scope = _innermost(scopes, at)
            stops = end > at + 1
            items.append(Place(scope, numbers[scope], stops, todo["task"], tuple(lines[at:end])))
            numbers[scope] += 1
            at = end
            continue
        is_header = at == 0 and HEADER.match(lines[at])
        items.append(Place("*", 0, False, "", (lines[at],)) if is_header else lines[at])
        at += 1
    return items


def text_of(items: Sequence[Item]) -> list[str]:
    """The lines that items stand for."""
    return [line for item in items for line in (item.lines if isinstance(item, Place) else (item,))]


def _size_of_stop(lines: Sequence[str]) -> int:
    """Lines of the statement below a TODO that raises: none where a learner has removed it."""
    if lines and STOPS_IN_CUDA.match(lines[0]):
        return 1
    if len(lines) >= len(RAISES) and all(
        form.match(line) for form, line in zip(RAISES, lines, strict=False)
    ):
        return len(RAISES)
    return 0


@dataclass(frozen=True, slots=True)
class _Scope:
    name: str
    begin: int
    end: int


def _scopes(text: str, path: PurePath) -> list[_Scope]:
    """Functions and classes with their first and last line, 0-based, outer ones first."""
    if path.suffix in CUDA_SOURCES:
        try:
            return [_Scope(body.name, body.begin, body.end) for body in find_bodies(text)][::-1]
        except BraceError as error:
            raise UnreadableError(error.line + 1, str(error)) from None
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(error.lineno or 1, error.msg) from None
    found: list[_Scope] = []
    _collect(tree, "", found)
    return found


def _collect(node: ast.AST, prefix: str, found: list[_Scope]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            found.append(_Scope(name, child.lineno - 1, (child.end_lineno or child.lineno) - 1))
            _collect(child, f"{name}.", found)
        else:
            _collect(child, prefix, found)


def _innermost(scopes: Sequence[_Scope], line: int) -> str:
    """In Python the innermost function around a line, in CUDA C++ the outermost."""
    around = [scope.name for scope in scopes if scope.begin <= line <= scope.end]
    return around[-1] if around else ""
