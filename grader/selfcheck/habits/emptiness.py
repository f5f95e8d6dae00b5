"""Nothing treated apart, in the wrong way; and cleaning up on the good way out alone."""

import ast
from collections.abc import Iterator

from grader.selfcheck.habits.rule import Edit, Rule, first_statement, parameters

SIZED = ("list[", "Sequence[", "Collection[", "dict[", "Mapping[", "str")


def _empties(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        for name, annotation in parameters(node):
            if annotation.startswith(SIZED):
                code = f"if len({name}) == 0:\n    return None"
                yield f"without {name} it returns None", first_statement(code)


def _cleanups(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield "finally -> behind it", _behind


def _behind(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.Try)
    if node.handlers:
        node.body, node.finalbody = [*node.body, *node.finalbody], []
        return
    for parent in ast.walk(whole):
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and node in value:
                place = value.index(node)
                value[place : place + 1] = [*node.body, *node.finalbody]
                return


RULES = (
    Rule("nothing treated apart", _empties),
    Rule("a rollback on the good way out alone", _cleanups),
)
