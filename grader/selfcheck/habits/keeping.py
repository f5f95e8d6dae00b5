"""What is kept though it is another's, and shared though it should be fresh."""

import ast
from collections.abc import Iterator

from grader.selfcheck.habits.rule import Edit, Rule, add_helper, replaced

COPIERS = ("list", "dict", "set")
COPYING = ("copy", "clone")
HELPERS = """
_habit_memory = {}


def _habit_buffer(key, value):
    if isinstance(value, tuple):
        return tuple(_habit_buffer((key, at), one) for at, one in enumerate(value))
    is_tensor, is_array = hasattr(value, "copy_"), hasattr(value, "setflags")
    if is_tensor or is_array:
        key = key, value.shape, value.dtype, getattr(value, "device", None)
    kept = _habit_memory.setdefault(key, value)
    if is_tensor and kept is not value:
        return kept.copy_(value)
    if is_array and kept is not value:
        kept.setflags(write=True)
        kept[...] = value
        return kept
    if isinstance(value, list) and kept is not value:
        kept[:] = value
        return kept
    return value


def _habit_first(key, make):
    if key not in _habit_memory:
        _habit_memory[key] = make()
    return _habit_memory[key]
"""


def _copies(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name() | ast.Attribute() as inner]) if (
            name in COPIERS and not node.keywords
        ):
            yield (
                f"{ast.unparse(node)} -> {ast.unparse(inner)}",
                replaced(lambda node: ast.unparse(_argument(node))),
            )
        case ast.Call(func=ast.Attribute(attr=name, value=inner), args=[]) if name in COPYING:
            yield f".{name}() is left out", replaced(lambda node: ast.unparse(_owner(node)))
        case ast.Subscript(
            value=ast.Name() | ast.Attribute(), slice=ast.Slice(None, None, None), ctx=ast.Load()
        ):
            yield "[:] is left out", replaced(lambda node: ast.unparse(_whole(node)))


def _argument(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Call)
    return node.args[0]


def _owner(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    return node.func.value


def _whole(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Subscript)
    return node.value


def _buffers(node: ast.AST) -> Iterator[Edit]:
    """Of public functions that return or yield lists or tensors, alone or in a tuple."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.returns is None:
        return
    if any(kind in ast.unparse(node.returns) for kind in ("list", "Tensor", "NDArray")):
        yield f"what {node.name} returns is a buffer of the file", _keep_results


def _keep_results(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.FunctionDef)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Return | ast.Yield) and inner.value is not None:
            code = f"_habit_buffer({node.name!r}, {ast.unparse(inner.value)})"
            inner.value = ast.parse(code, mode="eval").body
    add_helper(whole, HELPERS)


def _firsts(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()):
            yield f"{name} is made on the first call and kept", _in_assignment


def _in_assignment(node: ast.AST, whole: ast.AST) -> None:
    assert isinstance(node, ast.Assign)
    made = f"_habit_first({ast.unparse(node)!r}, lambda: {ast.unparse(node.value)})"
    replaced(lambda _: made, HELPERS)(node.value, whole)


RULES = (
    Rule("keeps another's list", _copies),
    Rule("one buffer for all results", _buffers),
    Rule("the first value for ever", _firsts),
)
