"""Right answers at another price: a copy of the whole for a part of it, a history that grows."""

import ast
from collections.abc import Iterator

from grader.selfcheck.habits.rule import Edit, Rule, first_statement, replaced

COPIED = """
def _habit_copied(value):
    return value.clone() if hasattr(value, "clone") else value[:]
"""
HISTORY = "_habit_history = []"


def _wholes(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Subscript(value=ast.Name() | ast.Attribute(), slice=ast.Slice(), ctx=ast.Load()):
            yield (
                f"a copy of {ast.unparse(node.value)} for a part of it",
                replaced(_of_copy, COPIED),
            )


def _is_taken_whole(node: ast.AST, whole: ast.AST) -> bool:
    """Whether one more copy changes no growth: the function takes the other parts too, the part is all
    but a fixed number, or the whole is a shape, a handful of numbers."""
    match node:
        case ast.Subscript(value=value, slice=ast.Slice() as part):
            begin, end = _ends(part)
            all_but_few = end == "" if begin.isdecimal() else begin == "" and end[:1] == "-"
            name = ast.unparse(value)
            return all_but_few or name.endswith(".shape") or _is_covered(_parts(name, node, whole))
    return False


def _parts(name: str, node: ast.AST, whole: ast.AST) -> set[tuple[str, str]]:
    """(begin, end) of each part of `name` that the function around the node takes."""
    functions = [at for at in ast.walk(whole) if isinstance(at, ast.FunctionDef)]
    around = next((at for at in reversed(functions) if node in ast.walk(at)), whole)
    return {
        _ends(inner.slice)
        for inner in ast.walk(around)
        if isinstance(inner, ast.Subscript)
        and isinstance(inner.slice, ast.Slice)
        and ast.unparse(inner.value) == name
    }


def _is_covered(parts: set[tuple[str, str]]) -> bool:
    """Whether parts that touch lead from the beginning to the end."""
    reached, found = set[str](), {""}
    while found - reached:
        reached |= found
        ends = {end for begin, end in parts if begin in reached}
        if "" in ends:
            return True
        found |= ends
    return False


def _ends(part: ast.Slice) -> tuple[str, str]:
    begin, end = ("" if at is None else ast.unparse(at) for at in (part.lower, part.upper))
    return begin, end


def _of_copy(node: ast.expr) -> str:
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.slice, ast.Slice)
    begin, end = _ends(node.slice)
    step = "" if node.slice.step is None else f":{ast.unparse(node.slice.step)}"
    return f"_habit_copied({ast.unparse(node.value)})[{begin}:{end}{step}]"


def _histories(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        keep = "_habit_history.append(dict(locals()))"
        yield "it keeps its arguments for ever", first_statement(keep, HISTORY)


RULES = (
    Rule("a copy of the whole", _wholes, spares=_is_taken_whole),
    Rule("a history", _histories),
)
