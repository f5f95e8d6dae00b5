"""Keys that are alike where what they stand for is not."""

import ast
from collections.abc import Callable, Iterator

from grader.selfcheck.habits.rule import Edit, Rule, replaced


def _tuples(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Call(func=ast.Name(id="tuple"), args=[_]):
            yield "tuple -> frozenset", replaced(_made("frozenset"))
            yield "tuple -> sum", replaced(_made("sum"))


def _made(name: str) -> Callable[[ast.expr], str]:
    def make(node: ast.expr) -> str:
        assert isinstance(node, ast.Call)
        return f"{name}({ast.unparse(node.args[0])})"

    return make


RULES = (Rule("a key that is no key", _tuples),)
