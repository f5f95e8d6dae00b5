"""Small wrong versions of the reference: one operator, constant, condition or statement is changed.

Of a lab only the solution regions are changed: what a learner writes. Texts of messages, annotations,
docstrings and assertions are left alone, since no behaviour hangs on them. `tests/mutants` makes the
same changes in the engine, of which it wants few: a `Site` says what would change, and makes the source
when it is asked for.
"""

import ast
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grader.selfcheck.cuda_mutants import mutants_of_cuda
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.trees import (
    Change,
    changed,
    functions_at,
    put,
    sources_with_tasks,
    untouched,
)
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NOT_DELETED = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Pass,
    ast.Return,
    ast.Import,
    ast.ImportFrom,
    ast.Assert,
    ast.Nonlocal,
    ast.Global,
)


def mutants_of(folder: Path, lab: Lab) -> Iterator[Mutant]:
    """Every mutant of a lab's reference, file by file."""
    for path, text, task_at in sources_with_tasks(folder):
        of_file = mutants_of_cuda if path.suffix in CUDA_SOURCES else mutants_of_python
        yield from of_file(text, path.relative_to(folder).as_posix(), task_at)


def mutants_of_python(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    """task_at: the task of each line that may be changed, counted from 0."""
    for site in sites_of_python(text, task_at):
        task = task_at[site.number]
        yield Mutant(file, site.function, site.line, site.change, task, site.source())


@dataclass(frozen=True, slots=True)
class Site:
    """A change of one node. number: of its line, from 0. source: makes the whole file as changed."""

    number: int
    function: str
    line: str
    change: str
    source: Callable[[], str]


def sites_of_python(text: str, lines_to_change: Container[int]) -> Iterator[Site]:
    """Every change of the nodes that begin on one of these lines, counted from 0."""
    tree = ast.parse(text)
    lines = text.splitlines()
    functions = functions_at(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    for index, node in enumerate(ast.walk(tree)):
        number = getattr(node, "lineno", 0) - 1
        if number not in lines_to_change or index in untouched(tree):
            continue
        for change, apply in _changes(node):
            function = functions.get(number, "")
            line = lines[number].strip()
            seen[function, line, change] += 1
            count = seen[function, line, change]
            label = change if count == 1 else f"{change} ({count})"
            yield Site(number, function, line, label, partial(changed, tree, index, apply))


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """What may be changed in a node: (in words, how)."""
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                if swap := COMPARISONS.get(type(operator)):
                    yield f"{_name(operator)} -> {swap.__name__}", _set_comparison(i, swap)
        case ast.BinOp() | ast.AugAssign() if swapped := OPERATORS.get(type(node.op)):
            yield f"{_name(node.op)} -> {swapped.__name__}", _set("op", swapped)
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield f"{_name(node.op)} -> {other.__name__}", _set("op", other)
        case ast.Constant() if isinstance(node.value, bool):
            yield f"{node.value} -> {not node.value}", _set_value(not node.value)
        case ast.Constant() if isinstance(node.value, int | float):
            yield f"{node.value} -> {node.value + 1}", _set_value(node.value + 1)
        case ast.UnaryOp() if isinstance(node.op, ast.USub):
            yield "drop the minus", _set("op", ast.UAdd)
        case ast.UnaryOp() if isinstance(node.op, ast.Invert | ast.Not):
            yield f"drop the {_name(node.op)}", _replace_by_operand
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negate the condition", _negate
    if isinstance(node, ast.Return) and not _is_none(node.value):
        yield "return None", _return_none
    elif isinstance(node, ast.stmt) and not isinstance(node, NOT_DELETED) and not _is_text(node):
        yield f"delete the {_name(node)}", _delete


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _set(field: str, kind: type[ast.AST]) -> Change:
    return lambda node, whole: setattr(node, field, kind())


def _set_value(value: object) -> Change:
    return lambda node, whole: setattr(node, "value", value)


def _set_comparison(index: int, kind: type[ast.cmpop]) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Compare)
        node.ops[index] = kind()

    return apply


def _negate(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _return_none(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.Return)
    node.value = None


def _replace_by_operand(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    put(node, node.operand, whole)


def _delete(node: ast.AST, whole: ast.AST) -> None:
    put(node, ast.Pass(), whole)
