"""What operators and builtins go through in lists that a part has made itself, counted in a call.

`in`, a slice, `del items[0]` and `sum(items)` are a loop in C and no line of Python: nothing that traces
lines or calls sees how long they take. So for a call that is counted the functions of the part have
other code. It is compiled from their own files, in which these operations go through the functions
below, and it has the same lines. Only a function whose code is just what its file compiles to is
changed; afterwards it has its own code again.
"""

import ast
import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

Items = Callable[[int], None]
"""Takes how many items an operation has gone through."""

OWN = (list, tuple, deque)
"""In which C looks for an item one by one. Those that a grader hands in count by themselves."""
WALKS = {walk.__name__: walk for walk in (sum, min, max, sorted, list, tuple, set, frozenset)}
"""Builtins that go through all of their argument."""

_items: list[Items] = []


@contextmanager
def counted_operators(part: Any, files: str, items: Items) -> Iterator[None]:
    """In the block, what the part's operators go through is told to `items`. files: what the paths of
    its files begin with."""
    before: list[tuple[FunctionType, CodeType]] = []
    _items.append(items)
    for name, function in HELPERS.items():
        setattr(builtins, name, function)
    try:
        for function in _functions_of(part, files):
            if (code := _counting(function.__code__)) is not None:
                before.append((function, function.__code__))
                function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code
        _items.remove(items)
        if not _items:
            for name in HELPERS:
                delattr(builtins, name)


def _went_through(number: int) -> None:
    for items in _items:
        items(number)


def _contains(item: Any, items: Any) -> bool:
    """`item in items`."""
    if type(items) not in OWN:
        return item in items
    for number, each in enumerate(items, 1):
        if each is item or each == item:
            _went_through(number)
            return True
    _went_through(len(items))
    return False


def _lacks(item: Any, items: Any) -> bool:
    """`item not in items`."""
    return not _contains(item, items)


def _sliced(items: Any, *bounds: Any) -> Any:
    """`items[start:stop:step]`."""
    found = items[slice(*bounds)]
    if type(items) in (list, tuple) and found is not items:
        _went_through(len(found))
    return found


def _cut(items: Any, *bounds: Any) -> None:
    """`del items[start:stop:step]`."""
    _deleted(items, slice(*bounds))


def _deleted(items: Any, index: Any) -> None:
    """`del items[index]`. From the front: all others move up. A list in order of ranks that is cut in
    its middle is a choice that the contracts leave open, and does not count."""
    before = len(items) if type(items) is list else 0
    del items[index]
    if before:
        first = index.indices(before)[0] if isinstance(index, slice) else range(before)[index]
        _went_through(0 if first else len(items))


def _placed(values: Any, items: Any, *bounds: Any) -> None:
    """`items[start:stop:step] = values`. In front: all others make room."""
    is_front = type(items) is list and slice(*bounds).indices(len(items))[0] == 0
    items[slice(*bounds)] = values
    if is_front:
        _went_through(len(items))


def _walked(walk: Any, *arguments: Any, **options: Any) -> Any:
    """`sum(items)` and the like."""
    is_one = WALKS.get(getattr(walk, "__name__", "")) is walk and len(arguments) == 1
    if is_one and type(arguments[0]) in (*OWN, dict, set, frozenset):
        _went_through(len(arguments[0]))
    return walk(*arguments, **options)


HELPERS: dict[str, Callable[..., Any]] = {
    f"__yaie_{function.__name__[1:]}__": function
    for function in (_contains, _lacks, _sliced, _placed, _cut, _deleted, _walked)
}
"""By the names that they have among the builtins meanwhile: no class changes names that end with __."""


class _Counting(ast.NodeTransformer):
    """Puts the functions above in the place of operators."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return node
        name = "contains" if isinstance(node.ops[0], ast.In) else "lacks"
        return _call(node, name, node.left, node.comparators[0])

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Slice):
            return node
        return _call(node, "sliced", node.value, *_bounds(node.slice))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        if not isinstance(target.slice, ast.Slice):
            return node
        call = _call(node, "placed", node.value, target.value, *_bounds(target.slice))
        return ast.copy_location(ast.Expr(call), node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        if isinstance(target.slice, ast.Slice):
            call = _call(node, "cut", target.value, *_bounds(target.slice))
        else:
            call = _call(node, "deleted", target.value, target.slice)
        return ast.copy_location(ast.Expr(call), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id not in WALKS:
            return node
        call = _call(node, "walked", node.func, *node.args)
        call.keywords = node.keywords
        return call


def _bounds(given: ast.Slice) -> list[ast.expr]:
    return [end or ast.Constant(None) for end in (given.lower, given.upper, given.step)]


def _call(node: ast.AST, name: str, *arguments: ast.expr) -> ast.Call:
    called = ast.Name(f"__yaie_{name}__", ast.Load())
    return ast.copy_location(ast.Call(called, list(arguments), []), node)


def _counting(code: CodeType) -> CodeType | None:
    """The code that counts in the place of this one; None where it would be the same, or where the file
    is not what this code comes from."""
    try:
        stamp = Path(code.co_filename).stat().st_mtime_ns
        plain, other = _codes_of(code.co_filename, stamp).get(_key(code), (None, None))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    if plain is None or other is None or other.co_freevars != code.co_freevars:
        return None
    return other if _shape(plain) == _shape(code) else None


def _shape(code: CodeType) -> tuple[Any, ...]:
    """What two codes that do the same have alike, however often they have run."""
    constants = tuple(
        _shape(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts
    )
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return _key(code), code.co_code, names, constants


@lru_cache(256)
def _codes_of(path: str, stamp: int) -> dict[tuple[str, int], tuple[CodeType, CodeType]]:
    """By name and first line, the codes of a file's functions: as they are, and those that count. Those
    that are alike in both have no place in it, nor have two on one line."""
    tree = ast.parse(Path(path).read_bytes(), path)
    plain = compile(tree, path, "exec", dont_inherit=True)
    counting = ast.fix_missing_locations(_Counting().visit(tree))
    other = compile(counting, path, "exec", dont_inherit=True)
    found: dict[tuple[str, int], tuple[CodeType, CodeType] | None] = {}
    for one, changed in zip(_inside(plain), _inside(other), strict=True):
        found[_key(one)] = None if _key(one) in found else (one, changed)
    return {key: pair for key, pair in found.items() if pair and _shape(pair[0]) != _shape(pair[1])}


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _inside(code: CodeType) -> Iterator[CodeType]:
    """All codes within a code, in order."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _functions_of(part: Any, files: str) -> Iterator[FunctionType]:
    """The functions of a part's files that its modules, its classes and their objects lead to. Other
    modules are not looked into, and of other classes what they inherit."""
    modules = [part, *_modules_of(files, len(sys.modules))]
    names = {getattr(module, "__name__", "") for module in modules}
    held: list[Any] = [one for module in modules for one in vars(module).values()]
    seen: set[int] = set()
    while held:
        value = held.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(files):
            yield value
        if isinstance(value, type):
            own = [kind for kind in value.__mro__ if kind.__module__ in names]
            held += [one for kind in own for one in vars(kind).values()]
        else:
            held += _within(value)


@lru_cache(16)
def _modules_of(files: str, count: int) -> list[ModuleType]:
    """Those of a part's files. count: of all modules, of which there are thousands."""
    return [
        module
        for module in list(sys.modules.values())
        if str(vars(module).get("__file__") or "").startswith(files)
    ]


def _within(value: Any) -> list[Any]:
    """What may be a function, or lead to one."""
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        inner.append(vars(value).get("__wrapped__"))
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # of a name that has no value yet
                inner.append(cell.cell_contents)
    elif isinstance(value, staticmethod | classmethod):
        inner.append(value.__func__)
    elif isinstance(value, property):
        inner += [value.fget, value.fset, value.fdel]
    elif isinstance(value, cached_property | partial):
        inner.append(value.func)
    elif type(value) is dict:
        inner += value.values()
    return [one for one in inner if isinstance(one, FunctionType | type)]
