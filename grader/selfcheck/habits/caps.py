"""A limit where there is none, and one row more or less."""

import ast
from collections.abc import Iterator

from grader.selfcheck.habits.rule import Edit, Rule
from grader.selfcheck.trees import Change, put

MOST = 1000
ENDLESS = ("count", "cycle", "iter")


def _loops(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.For(iter=over) if _is_capped(over):
            yield f"{ast.unparse(over)} ends at {MOST}", _cap


def _is_capped(over: ast.expr) -> bool:
    name = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    return name not in ENDLESS and not isinstance(over, ast.Tuple | ast.List)


def _cap(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.For)
    node.iter = ast.parse(f"list({ast.unparse(node.iter)})[:{MOST}]", mode="eval").body


def _ends(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Slice(upper=ast.expr()):
            yield "ends one later", _move("upper", "+ 1")
            yield "ends one earlier", _move("upper", "- 1")
        case ast.Slice(lower=ast.expr()):
            yield "begins one later", _move("lower", "+ 1")


def _move(field: str, by: str) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        end = getattr(node, field)
        put(end, ast.parse(f"({ast.unparse(end)}) {by}", mode="eval").body, whole)

    return apply


RULES = (Rule("a cap", _loops), Rule("one row more or less", _ends))
