"""A script of calls as a program: with its imports, and with names for what later calls use.

Only what has been carried out counts: `as_program` runs the program once, and gives it up unless every
call gives again what the script says it gave, and the last one gave something. What it cannot make a
program of remains an account.
"""

import ast
import builtins
import importlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from typing import Any

from grader.kit.script import current_script, resume_script, show, start_script

GAVE = re.compile(r"^(?P<call>.*?)  # (?:-> (?P<result>.*)|raises (?P<error>\w+))$", re.S)
KNOWN = ("math", "yaie.core.request", "yaie.core.params", "yaie.core.batch", "yaie.core.errors")
"""Where names of scripts come from that a part does not have itself."""
LENT = ("solutions.paged_cache", "solutions.radix_tree")
"""The reference's parts that a suite puts beside the part under test."""
BUILTINS = frozenset(dir(builtins))


class NoProgram(Exception):
    """A script that is an account of calls, and no more."""


def as_program(lines: Sequence[str], part: ModuleType) -> tuple[str, ...] | None:
    """Lines to paste into an interpreter; None for an account of calls.

    part: as it was imported. Carries the calls out once more, with whatever they cost: the caller
    bounds the time. What they print is dropped.
    """
    try:
        named = [*_named(list(lines))]
        program = [*_imports(named, part), *named]
        _carry_out(program)
    except (NoProgram, SyntaxError, ValueError):
        return None
    return tuple(program)


def _named(lines: list[str]) -> Iterator[str]:
    """The lines, in which what a later one uses has got its name: `_, node1 = tree.insert(...)`."""
    bound: set[str] = set()
    for index, line in enumerate(lines):
        later = {name for other in lines[index + 1 :] for name in _loads(other)}
        found = GAVE.match(line)
        result = found and found["result"]
        if result and isinstance(_only(line), ast.Expr):
            target = _target(result, later - bound)
            line = f"{target} = {line}" if target else line
        bound |= _stores(line)
        yield line


def _target(result: str, wanted: set[str]) -> str:
    """What a call's result is assigned to, so that the names in it are bound; "" if there are none."""
    try:
        shape = ast.parse(result, mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(shape, ast.Name):
        return shape.id if shape.id in wanted else ""
    if not isinstance(shape, ast.Tuple):
        return ""
    names = [item.id if isinstance(item, ast.Name) else "_" for item in shape.elts]
    names = [name if name in wanted else "_" for name in names]
    return ", ".join(names) if set(names) != {"_"} else ""


def _only(line: str) -> ast.stmt | None:
    """The statement of a line; None for a comment. Raises NoProgram for words and for several."""
    try:
        body = ast.parse(line).body
    except SyntaxError:
        raise NoProgram(line) from None
    if len(body) > 1:
        raise NoProgram(line)
    return body[0] if body else None


def _names(line: str, context: type[ast.expr_context]) -> set[str]:
    statement = _only(line)
    nodes = ast.walk(statement) if statement is not None else ()
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _loads(line: str) -> set[str]:
    return _names(line, ast.Load)


def _stores(line: str) -> set[str]:
    statement = _only(line)
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return _names(line, ast.Store)


def _imports(lines: Sequence[str], part: ModuleType) -> list[str]:
    """Imports for all names that no line binds before it uses them. Raises NoProgram if one has no
    source."""
    bound: set[str] = set(BUILTINS)
    sources: dict[str, list[str]] = {}
    modules, made = list[str](), list[str]()
    for line in lines:
        for name in sorted(_loads(line) - bound):
            bound.add(name)
            if name == "torch":
                modules.append("import torch")
                continue
            kind = current_script().watched.get(name)
            if kind is not None and hasattr(part, kind.__name__):
                made.append(
                    f"{name} = {kind.__name__}()"
                )  # carried out, it shows whether this will do
                name = kind.__name__
            sources.setdefault(_source(name, part), []).append(name)
        bound |= _stores(line)
    names = [f"from {source} import {', '.join(names)}" for source, names in sources.items()]
    return [*modules, *names, *made]


def _source(name: str, part: ModuleType) -> str:
    if hasattr(part, name):
        return part.__name__
    for module in (*KNOWN, *LENT):
        if hasattr(importlib.import_module(module), name):
            return module
    raise NoProgram(name)


def _carry_out(lines: Sequence[str]) -> None:
    """Raises NoProgram if a call does not give what its line says, or if the last says nothing: then
    nothing shows that these calls lead to the failure. What writes its calls down itself, such as a toy
    engine, must write the same lines again; then the last call may fail as it did."""
    script, space = current_script(), dict[str, Any]()
    start_script()  # names for objects are given anew, in the same order
    found, error, expected = None, "", ""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            for line in lines:
                if error != expected:
                    raise NoProgram(f"{error} before {line}")
                found = GAVE.match(line)
                expected = (found and found["error"]) or ""
                error = _error_of(line, space, found and found["result"])
        again = current_script().lines
        is_the_same = bool(again) and again == script.lines
    finally:
        resume_script(script)
    if not is_the_same and (found is None or error != expected):
        raise NoProgram("nothing shows that these calls lead to the failure")


def _error_of(line: str, space: dict[str, Any], result: str | None) -> str:
    """The name of what a line raises, "" if it passes."""
    statement = _only(line)
    if statement is None:
        raise NoProgram(f"{line}: something happens that is no call")
    try:
        if not (isinstance(statement, ast.Expr | ast.Assign) and result is not None):
            exec(line, space)
            return ""
        value = eval(compile(ast.Expression(statement.value), "<script>", "eval"), space)
    except Exception as error:  # noqa: BLE001, a part may raise anything
        return type(error).__name__
    if show(value) != result:
        raise NoProgram(line)
    if isinstance(statement, ast.Assign):
        space["_value"] = value
        exec(f"{ast.unparse(statement.targets[0])} = _value", space)
    return ""
