"""Functions that today's stub has emptied: all that a learner has in one goes to its new place.

A task may be written from an empty function today that was a hole in given code, with helpers that had
a signature. Before three files become one, then and mine are put into today's form:

    a function that is one place today          its whole body is a place in then, too
    a function of then that is gone today,      is cut out of then, and a place for helpers stands there;
    where its task has a place for helpers      in mine it stands there, if it was finished

What surrounded the learner's lines is theirs from then on. Python alone: CUDA files have no such place.
"""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.upgrade.places import TODO

STUB = "not implemented yet; see chapter"


@dataclass(frozen=True, slots=True)
class Function:
    """Lines of a function: begin..end of all of it, body..end behind its docstring. task: of the first
    place in it, "" if there is none."""

    scope: str
    begin: int
    body: int
    end: int
    task: str


@dataclass(frozen=True, slots=True)
class _Today:
    """What today's stub leaves to the learner. emptied: functions that are a place, with its lines.
    helpers: (scope, task) -> the line that has room for helpers."""

    emptied: dict[str, list[str]]
    helpers: dict[tuple[str, str], str]


def in_todays_form(then: str, mine: str, now: str) -> tuple[str, str]:
    """then and mine, where today's stub has emptied functions. Raises SyntaxError."""
    today = _today(now)
    has_now = _functions(now)
    gone = {
        name: one
        for name, one in _functions(then).items()
        if name not in has_now and (one.scope, one.task) in today.helpers
    }
    written = _functions(mine)
    done = {name for name in gone if name in written and not _is_open(mine, written[name])}
    open_tasks = {gone[name].task for name in gone.keys() - done}
    for (scope, task), line in today.helpers.items():
        names = [name for name, one in gone.items() if (one.scope, one.task) == (scope, task)]
        if not names:
            continue
        kept = [_text(mine, written[name]) for name in names if name in done]
        room = [line] if not kept else _joined(kept, gap=1 if scope else 2)
        then = _replaced(then, names, [line])
        mine = _replaced(mine, [name for name in names if name in written], room)
    for name, place in today.emptied.items():
        before, own = _functions(then).get(name), _functions(mine).get(name)
        if before is None or own is None:
            continue
        as_it_was = _body(mine, own) == _body(then, before)
        task = next(todo["task"] for text in place if (todo := TODO.match(text)))
        if as_it_was and (before.task or task in open_tasks):
            mine = _with_body(mine, own, place)
        then = _with_body(then, before, place)
    return then, mine


def _today(now: str) -> _Today:
    lines = now.splitlines()
    emptied, inside = {}, set[int]()
    for name, one in _functions(now).items():
        inside.update(range(one.begin, one.end))
        body = lines[one.body : one.end]
        if body and TODO.match(body[0]) and STUB in "".join(body) and len(body) == 4:
            emptied[name] = body
    helpers = {}
    scopes = _classes(now)
    for at, line in enumerate(lines):
        todo = TODO.match(line)
        if todo and at not in inside:
            above = [name for name, begin in scopes if begin < at]
            helpers[above[-1] if todo["indent"] else "", todo["task"]] = line
    return _Today(emptied, helpers)


def _functions(text: str) -> dict[str, Function]:
    """Functions of a module and methods of its classes, by dotted name."""
    lines = text.splitlines()
    found: dict[str, Function] = {}
    tree = ast.parse(text)
    inner = [(f"{one.name}.", one.body) for one in tree.body if isinstance(one, ast.ClassDef)]
    for prefix, body in [("", tree.body), *inner]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = _function(node, prefix.rstrip("."), lines)
    return found


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, scope: str, lines: Sequence[str]
) -> Function:
    begin = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if has_docstring:
        body = first.end_lineno or first.lineno
    else:
        body = first.lineno - 1
        while TODO.match(lines[body - 1]):
            body -= 1
    end = node.end_lineno or node.lineno
    todos = (TODO.match(line) for line in lines[begin:end])
    task = next((todo["task"] for todo in todos if todo), "")
    return Function(scope, begin, body, end, task)


def _classes(text: str) -> list[tuple[str, int]]:
    """With their first line. The last one's place for helpers may be behind its last statement."""
    tree = ast.parse(text)
    return [(node.name, node.lineno - 1) for node in tree.body if isinstance(node, ast.ClassDef)]


def _is_open(text: str, one: Function) -> bool:
    return any(STUB in line for line in _text(text, one))


def _text(text: str, one: Function) -> list[str]:
    return text.splitlines()[one.begin : one.end]


def _body(text: str, one: Function) -> list[str]:
    return text.splitlines()[one.body : one.end]


def _joined(functions: Iterable[list[str]], gap: int) -> list[str]:
    lines: list[str] = []
    for function in functions:
        lines += [*([""] * gap if lines else []), *function]
    return lines


def _replaced(text: str, names: Sequence[str], lines: Sequence[str]) -> str:
    """A file without some functions, and these lines where the first of them stood."""
    found = _functions(text)
    old = text.splitlines()
    spans = sorted((found[name].begin, found[name].end) for name in names)
    for number, (begin, end) in reversed(list(enumerate(spans))):
        old[begin:end] = lines if number == 0 else []
    return "\n".join(old) + "\n"


def _with_body(text: str, one: Function, body: Sequence[str]) -> str:
    lines = text.splitlines()
    lines[one.body : one.end] = body
    return "\n".join(lines) + "\n"
