"""What mutants of Python are made with: which lines are tasks, and a tree with one node changed."""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from grader.regions import find_regions
from yaie.curriculum.progress import source_files

Change = Callable[[ast.AST, ast.AST], None]
"""Changes a node in place; also given the whole tree, for changes that need the parent."""


def sources_with_tasks(folder: Path) -> Iterator[tuple[Path, str, dict[int, str]]]:
    """(file, its text, the lines of its solution regions with their tasks) of a lab's reference."""
    for path in source_files(folder):
        text = path.read_text("utf-8")
        regions = find_regions(text.splitlines(), path)
        if regions:
            yield path, text, {n: r.task for r in regions for n in range(r.begin, r.end)}


@lru_cache(
    maxsize=1
)  # by the tree itself, which it keeps: another one may come to have the same id
def untouched(tree: ast.AST) -> set[int]:
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


def changed(tree: ast.AST, index: int, apply: Change) -> str:
    """The source with the node of this index, in the order of `ast.walk`, changed."""
    whole = copy.deepcopy(tree)
    node = next(node for i, node in enumerate(ast.walk(whole)) if i == index)
    apply(node, whole)
    return ast.unparse(ast.fix_missing_locations(whole)) + "\n"


def functions_at(tree: ast.AST) -> dict[int, str]:
    """The innermost function around each line."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):  # outer functions come before inner ones
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            found |= dict.fromkeys(range(node.lineno - 1, last), node.name)
    return found


def put(old: ast.AST, new: ast.AST, whole: ast.AST) -> None:
    """Put a node in another one's place."""
    for parent in ast.walk(whole):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new
