"""Where an error came from, in words that a client may read: one line, capped, no absolute path."""

import os
import re
import traceback
from pathlib import Path

from yaie.curriculum.manifest import ROOT

MOST_CHARS = 240
_ABSOLUTE = re.compile(r"(?<![\w.])(?:(?:/[\w.@+~-]+){2,}|[A-Za-z]:(?:\\{1,2}[\w.@+~ -]+)+)")


def summarize(error: BaseException) -> str:
    """'IndexError: list index out of range'. Files in it keep their names alone."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001, a learner's exception class may be broken as well
        text = "(its message cannot be shown)"
    text = " ".join(text.split()).replace(f"{ROOT}{os.sep}", "")
    text = _ABSOLUTE.sub(lambda path: re.split(r"[/\\]", path[0])[-1], text)
    if len(text) > MOST_CHARS:
        text = text[: MOST_CHARS - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def lines_of(error: BaseException) -> list[tuple[Path, int]]:
    """File and line of every call that the error came through, innermost first.

    What is not Python at all comes first: no call leads there.
    """
    calls = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        calls.append((Path(error.filename), error.lineno or 0))
    return calls[::-1]


def line_in(folder: Path, error: BaseException) -> str | None:
    """'labs/sampler/sampler.py, line 41': the innermost line within `labs/sampler`; None without one."""
    for file, line in lines_of(error):
        if file.is_relative_to(folder):
            return f"{file.relative_to(folder.parent.parent).as_posix()}, line {line}"
    return None


def line_of_ours(error: BaseException) -> str:
    """The innermost line in this repository, from its root; for an error from nowhere in it, '?'."""
    for file, line in lines_of(error):
        if file.is_relative_to(ROOT) and "site-packages" not in file.parts:
            return f"{file.relative_to(ROOT).as_posix()}, line {line}"
    return "?"
