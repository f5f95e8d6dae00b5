"""What a rule of the catalogue is, and what several of them are made with."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grader.selfcheck.trees import Change, put

Edit = tuple[str, Change]
"""(what is changed, in words; how)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """name: of the habit. edits: what it may do to a node. spares: whether the node, in its file, is a
    place where the habit does no harm."""

    name: str
    edits: Callable[[ast.AST], Iterator[Edit]]
    spares: Callable[[ast.AST, ast.AST], bool] = lambda node, whole: False


def replaced(make: Callable[[ast.expr], str], helper: str = "") -> Change:
    """Put an expression in the place of a node. make: writes it, given the node. helper: statements for
    the beginning of the file, if they are not there yet."""

    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.expr)
        add_helper(whole, helper)
        put(node, ast.parse(make(node), mode="eval").body, whole)

    return apply


def add_helper(whole: ast.AST, helper: str) -> None:
    """Write statements behind a file's docstring and its imports from the future."""
    assert isinstance(whole, ast.Module)
    place = 0
    for place, statement in enumerate(whole.body):  # noqa: B007
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not is_text and not is_future:
            break
    whole.body[place:place] = ast.parse(helper).body


def first_statement(code: str, helper: str = "") -> Change:
    """Write a statement in front of a function's body."""

    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.FunctionDef)
        place = 1 if ast.get_docstring(node) is not None else 0
        node.body[place:place] = ast.parse(code).body
        add_helper(whole, helper)

    return apply


def parameters(node: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """(name, annotation as it is written) of each, `self` aside."""
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if argument.arg != "self":
            yield (
                argument.arg,
                "" if argument.annotation is None else ast.unparse(argument.annotation),
            )
