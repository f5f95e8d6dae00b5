"""What a part's `__launch_bounds__` promise, read from its source: on a CPU they mean nothing."""

import ast
import operator
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from grader.cuda_source import without_comments

CONSTANTS = re.compile(r"\bconstexpr\b([^;{}]*?=[^;{}]*);")
CONSTANT = re.compile(r"(\w+)\s*=\s*([^,]+)")
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+)$", re.M)
BOUNDED = re.compile(
    r"__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*(?:(?:__global__|void)\s+)*(\w+)\s*\("
)
DEEPEST = 8
"""Constants that are made of constants."""
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


def bounds_of(part: ModuleType) -> dict[str, int]:
    """Kernel -> the most threads of a block, for kernels whose bounds can be computed from constants."""
    folder = Path(str(part.__file__)).parent
    headers, files = (
        [path.read_text("utf-8") for path in sorted(folder.glob(f"*{suffix}"))]
        for suffix in (".cuh", ".cu")
    )
    return read_bounds(headers, files)


def read_bounds(headers: list[str], files: list[str]) -> dict[str, int]:
    """Of kernels in these files, which know the constants of all headers and their own."""
    shared = _constants(without_comments("\n".join(headers)))
    found: dict[str, int] = {}
    for code in map(without_comments, [*headers, *files]):
        known = shared | _constants(code)
        for promise, kernel in BOUNDED.findall(code):
            most = _value(promise.split(",")[0], known)
            if most is not None:
                found[kernel] = most
    return found


def _constants(code: str) -> dict[str, str]:
    found = DEFINED.findall(code)
    for several in CONSTANTS.findall(code):
        found += CONSTANT.findall(several)
    return dict(found)


def _value(text: str, known: dict[str, str], depth: int = 0) -> int | None:
    """A number or a sum, product or quotient of constants; None if it is something else."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _computed(tree, known, depth)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def _computed(tree: ast.expr, known: dict[str, str], depth: int) -> int:
    """Raises ValueError for what is no such expression."""
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in known and depth < DEEPEST:
            value = _value(known[name], known, depth + 1)
            if value is not None:
                return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            sides = (_computed(side, known, depth) for side in (left, right))
            return OPERATORS[type(op)](*sides)
    raise ValueError(ast.dump(tree))
