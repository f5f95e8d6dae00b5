"""What a part keeps from earlier calls outside of the objects that a test makes.

A value that is made on the first call and kept in a module, in a class or in a default argument shows in
a later test, all of whose own calls may be right. So the files of a part that fails are imported once
more, as if nothing had been called, and the test runs again on them. A lab asks for it in its conftest:

    from grader.kit.anew import pytest_pyfunc_call

Its `part` is the module, or a namespace whose `again()` makes the same namespace of files imported anew.
"""

import re
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grader.kit.expect import Fault, Mismatch
from grader.kit.script import current_script, resume_script, start_script
from grader.kit.session import SESSION
from grader.submission import import_package, told

MOST_SECONDS = 1.0
"""A test that takes longer is not run again."""
UNTOLD = (Fault, NotImplementedError, MemoryError, RecursionError)
"""Failures that say enough, or are no matter of what was called before."""
OF_EARLIER = "earlier call"
"""What the explanation of a check says that has found out by itself that something is of such a call."""
STILL_THERE = (
    "So a value of an earlier call is still there: in a variable of the module or of the class, in a "
    "default argument, or in a cache."
)
WELL = f"When your files are imported anew, and nothing was called before, this goes well. {STILL_THERE}"
OTHERWISE = (
    "That is how it ends when your files are imported anew, and nothing was called before. After the "
    f"calls of other tests it ended otherwise: {{}}. {STILL_THERE}"
)


def anew(part: Any) -> Any:
    """The part from the same files, imported a second time: it has kept nothing of any call."""
    if not isinstance(part, ModuleType):
        return part.again()
    name, file = part.__name__, str(part.__file__)
    held = _taken_out(name)
    try:
        return import_package(name, Path(file))
    finally:
        _taken_out(name)
        sys.modules.update(held)


def _taken_out(name: str) -> dict[str, ModuleType]:
    """A package with its modules, which `sys.modules` holds no longer."""
    names = [key for key in sys.modules if key == name or key.startswith(f"{name}.")]
    return {key: sys.modules.pop(key) for key in names}


def retold(error: Exception, run: Callable[[], Any]) -> Exception:
    """The failure to report in place of `error`: the same with another explanation if `run`, which makes
    the same calls on the part imported anew, goes well or fails in another way; else the error itself.

    Run twice: what is random tells nothing.
    """
    if isinstance(error, UNTOLD) or getattr(error, "is_retold", False):
        return error
    script, searches = current_script(), SESSION.searches
    script.settle()
    ends = []
    for _ in range(2):
        start_script(is_example=True)
        ends.append((_failure_of(run), current_script()))
        current_script().settle()
    SESSION.searches = searches
    resume_script(script)
    (fresh, its_script), (once_more, _) = ends
    if _said(fresh) != _said(once_more) or _said(fresh) == _said(error):
        return error
    if fresh is None:
        return _explained(error, WELL)
    if isinstance(fresh, UNTOLD):
        return error
    resume_script(its_script)
    problem = error.problem if isinstance(error, Mismatch) else told(error)
    got = f", got {error.got}" if isinstance(error, Mismatch) and error.got else ""
    return _explained(fresh, OTHERWISE.format(problem + got))


def _failure_of(run: Callable[[], Any]) -> Exception | None:
    try:
        run()
    except Exception as error:  # noqa: BLE001, a part may raise anything
        return error
    return None


def _said(error: Exception | None) -> str:
    """What tells one failure from another. Seconds and bytes, which no two runs share, do not."""
    if not isinstance(error, Mismatch):
        return "" if error is None else told(error)
    if error.expected or error.got:
        return f"{error.problem}: {error.expected}, {error.got}"
    return re.sub(r"\d+", "", error.problem)


def _explained(error: Exception, why: str) -> Exception:
    if isinstance(error, Mismatch):
        error.why = f"{error.why} {why}" if OF_EARLIER in error.why else why
        explained = error
    else:
        explained = Mismatch(told(error), why=why)
        explained.__cause__ = error
    explained.is_retold = True  # type: ignore[attr-defined]
    return explained


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """For a conftest: explains a failure by what was kept, if it was. A search would be made anew, and
    is not."""
    began = time.monotonic()
    try:
        return (yield)
    except Exception as error:
        if SESSION.searches or time.monotonic() - began > MOST_SECONDS:
            raise
        names = pyfuncitem._fixtureinfo.argnames
        given = {name: pyfuncitem.funcargs[name] for name in names}

        def run() -> None:
            pyfuncitem.obj(**{**given, "part": anew(given["part"])})

        explained = retold(error, run) if "part" in given else error
        if explained is error:
            raise
        raise explained from explained.__cause__
