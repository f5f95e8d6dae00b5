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


def _of_copy(node: ast.expr) -> str:
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.slice, ast.Slice)
    lower, upper = (
        "" if end is None else ast.unparse(end) for end in (node.slice.lower, node.slice.upper)
    )
    step = "" if node.slice.step is None else f":{ast.unparse(node.slice.step)}"
    return f"_habit_copied({ast.unparse(node.value)})[{lower}:{upper}{step}]"


def _histories(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        keep = "_habit_history.append(dict(locals()))"
        yield "it keeps its arguments for ever", first_statement(keep, HISTORY)


RULES = (
    Rule("a copy of the whole", _wholes),
    Rule("a history", _histories),
)
