"""Small wrong versions of the reference: one operator, constant, condition or statement is changed.

Only the solution regions are changed: what a learner writes. Texts of messages, annotations, docstrings
and assertions are left alone, since no behaviour hangs on them.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from grader.regions import find_regions
from grader.selfcheck.cuda_mutants import mutants_of_cuda
from grader.selfcheck.mutant import Mutant
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES, source_files

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
Change = Callable[[ast.AST, ast.AST], None]
"""Changes a node in place; also given the whole tree, for changes that need the parent."""


def mutants_of(folder: Path, lab: Lab) -> Iterator[Mutant]:
    """Every mutant of a lab's reference, file by file."""
    for path in source_files(folder):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        regions = find_regions(lines, path)
        if not regions:
            continue
        task_at = {
            line: region.task for region in regions for line in range(region.begin, region.end)
        }
        of_file = mutants_of_cuda if path.suffix in CUDA_SOURCES else _mutants_of_file
        yield from of_file(text, path.relative_to(folder).as_posix(), task_at)


def _mutants_of_file(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    tree = ast.parse(text)
    lines = text.splitlines()
    functions = _functions(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    for index, node in enumerate(ast.walk(tree)):
        number = getattr(node, "lineno", 0) - 1
        if number not in task_at or index in _untouched(tree):
            continue
        for change, apply in _changes(node):
            function = functions.get(number, "")
            line = lines[number].strip()
            seen[function, line, change] += 1
            count = seen[function, line, change]
            label = change if count == 1 else f"{change} ({count})"
            source = _changed(tree, index, apply)
            yield Mutant(file, function, line, label, task_at[number], source)


@lru_cache(
    maxsize=1
)  # by the tree itself, which it keeps: another one may come to have the same id
def _untouched(tree: ast.AST) -> set[int]:
    """Indices, in the order of `ast.walk`, of nodes inside annotations, messages and assertions."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign():
                roots: list[ast.AST] = [node.annotation]
            case ast.arg() if node.annotation is not None:
                roots = [node.annotation]
            case ast.Raise() | ast.JoinedStr() | ast.Assert():
                roots = list(ast.iter_child_nodes(node))
            case _:
                continue
        inside |= {id(child) for root in roots for child in ast.walk(root)}
    return {i for i, n in enumerate(ast.walk(tree)) if id(n) in inside}


def _changed(tree: ast.AST, index: int, apply: Change) -> str:
    whole = copy.deepcopy(tree)
    node = next(node for i, node in enumerate(ast.walk(whole)) if i == index)
    apply(node, whole)
    return ast.unparse(ast.fix_missing_locations(whole)) + "\n"


def _functions(tree: ast.AST) -> dict[int, str]:
    """The innermost function around each line."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):  # outer functions come before inner ones
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            found |= dict.fromkeys(range(node.lineno - 1, last), node.name)
    return found


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
    _put(node, node.operand, whole)


def _delete(node: ast.AST, whole: ast.AST) -> None:
    _put(node, ast.Pass(), whole)


def _put(old: ast.AST, new: ast.AST, whole: ast.AST) -> None:
    """Put a node in another one's place."""
    for parent in ast.walk(whole):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new
