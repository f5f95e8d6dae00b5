"""Numbers that are too narrow, and comparisons that hold for small or round ones alone."""

import ast
import re
from collections.abc import Callable, Iterator

from grader.selfcheck.habits.rule import Edit, Rule, replaced
from grader.selfcheck.trees import Change

TOKENS = {"token", "token_id", "tok"}
MASKS = (0xFF, 0x7FFF, 0xFFFFFF)
FLOATS = re.compile(r"temperature|prob|logit|penalt|factor|weight|scale|noise|_p\b|mass|score")
THRESHOLDS = (1e-6, 1e-3)


def _tokens(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in TOKENS:
            for mask in MASKS:
                yield f"{name} & {mask:#x}", replaced(_masked(mask))


def _masked(mask: int) -> Callable[[ast.expr], str]:
    return lambda node: f"({ast.unparse(node)} & {mask})"


def _identities(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return
    constants = [
        side.value for side in (node.left, *node.comparators) if isinstance(side, ast.Constant)
    ]
    if any(-5 <= one <= 256 for one in constants if type(one) is int):
        return  # of which Python has one each
    if isinstance(node.ops[0], ast.Eq):
        yield "== -> is", _set_operator(ast.Is)
    elif isinstance(node.ops[0], ast.NotEq):
        yield "!= -> is not", _set_operator(ast.IsNot)


def _set_operator(kind: type[ast.cmpop]) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Compare)
        node.ops = [kind()]

    return apply


def _floats(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Call(func=ast.Attribute(attr="float"), args=[]):
            for kind in ("half", "bfloat16"):
                yield f".float() -> .{kind}().float()", replaced(_through(kind))
        case ast.Call(func=ast.Attribute(attr="double"), args=[]):
            yield ".double() -> .float().double()", replaced(_through("float", "double"))
        case ast.Attribute(attr="float64"):
            yield "float64 -> float32", _set_attribute("float32")


def _through(kind: str, back: str = "float") -> Callable[[ast.expr], str]:
    def make(node: ast.expr) -> str:
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        return f"{ast.unparse(node.func.value)}.{kind}().{back}()"

    return make


def _set_attribute(name: str) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Attribute)
        node.attr = name

    return apply


def _thresholds(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(
            left=left, ops=[ast.Gt() | ast.GtE() | ast.Lt() | ast.LtE() | ast.Eq() | ast.NotEq()],
            comparators=[ast.Constant(value=0 | 0.0)],
        ) if FLOATS.search(ast.unparse(left)):  # fmt: skip
            for least in THRESHOLDS:
                yield f"0 -> {least}", _compared_with(least)


def _compared_with(value: float) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Compare)
        if isinstance(node.ops[0], ast.Eq):
            node.ops = [ast.LtE()]
        elif isinstance(node.ops[0], ast.NotEq):
            node.ops = [ast.Gt()]
        node.comparators = [ast.Constant(value)]

    return apply


RULES = (
    Rule("narrow integers", _tokens),
    Rule("is for ==", _identities),
    Rule("narrow floats", _floats),
    Rule("a threshold for zero", _thresholds),
)
