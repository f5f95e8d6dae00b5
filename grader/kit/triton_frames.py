"""What a kernel's variables hold where something goes wrong: integers, runs of lanes, pointers.

    frames_here()                 of the kernel that runs, from the innermost function to the kernel
    frames_of(error)              of the kernel that an error passed through
    told(frames, program)         as the lines of a report

An index that is wrong is seen at once beside the numbers that it was made of, and hardly without them.
"""

import linecache
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType
from typing import Any

MOST_NUMBERS = 14
"""Of one function. Of a kernel with more, arguments go that no line up to this one uses."""
MOST_FUNCTIONS = 4
MOST_LANES = 6
WIDTH = 90
TIED = "\N{NO-BREAK SPACE}"
GRADER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a kernel at a line. numbers: what its variables hold, as texts by name."""

    file: str
    line: int
    name: str
    numbers: dict[str, str]


def frames_here() -> tuple[Frame, ...]:
    """Of the kernel that is running; its integers and pointers."""
    return _chosen(_outward(sys._getframe(1)), floats=False)


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """Of the kernel that an error has passed through; none if it passed through none."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return _chosen(reversed(frames), floats=True)


def line_here() -> tuple[str, int, str]:
    """(file, line, function) of the kernel that is running, in the function that it stands in."""
    for frame, line in _outward(sys._getframe(1)):
        if not _is_ours(frame.f_code.co_filename):
            return frame.f_code.co_filename, line, frame.f_code.co_name
    return "", 0, ""


def told(frames: Sequence[Frame], program: tuple[int, ...] | None = None) -> str:
    """The lines of a report; "" if nothing is known."""
    lines = [] if program is None else [f"program {program}"]
    for frame in frames[:MOST_FUNCTIONS]:
        if frame.numbers:
            held = [f"{name} = {value}".replace(" ", TIED) for name, value in frame.numbers.items()]
            wrapped = textwrap.wrap(
                f"in {frame.name}: {', '.join(held)}", WIDTH, subsequent_indent="    "
            )
            lines += [line.replace(TIED, " ") for line in wrapped]
    return "\n".join(lines)


def _outward(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _chosen(frames: Iterable[tuple[FrameType, int]], *, floats: bool) -> tuple[Frame, ...]:
    """Functions of kernels, from the innermost one on, up to the launch."""
    found: list[Frame] = []
    for frame, line in frames:
        code = frame.f_code
        if code.co_name == "__call__" and _is_launch(frame):
            return tuple(found)
        if not _is_ours(code.co_filename):
            found.append(Frame(code.co_filename, line, code.co_name, _numbers(frame, line, floats)))
    return ()


def _is_launch(frame: FrameType) -> bool:
    return type(frame.f_locals.get("self")).__name__ == "GridExecutor"


def _is_ours(file: str) -> bool:
    """Whether a line is the interpreter's or the grader's, and not of a learner's kernel."""
    return os.path.abspath(file).startswith(GRADER) or f"{os.sep}triton{os.sep}" in file


def _numbers(frame: FrameType, line: int, floats: bool) -> dict[str, str]:
    code = frame.f_code
    arguments = code.co_varnames[: code.co_argcount]
    texts = {name: text for name, value in frame.f_locals.items() if (text := _text(value, floats))}
    if len(texts) <= MOST_NUMBERS:
        return texts
    before = range(code.co_firstlineno, line + 1)
    used = set(re.findall(r"\w+", " ".join(linecache.getline(code.co_filename, i) for i in before)))
    rest = [name for name in texts if name not in arguments]
    kept = [*rest, *(name for name in texts if name in arguments and name in used)][:MOST_NUMBERS]
    return {name: text for name, text in texts.items() if name in kept}


def _text(value: Any, floats: bool) -> str:
    """A variable's value, "" for one that says nothing here: a tile of floats, a mask, a pointer to
    where its tensor begins. floats: tell single ones."""
    value = getattr(value, "value", value)  # a constexpr
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}" if floats else ""
    handle = getattr(value, "handle", None)
    data = getattr(handle, "data", None)
    if data is None or not hasattr(data, "ravel"):
        return ""
    if (origin := getattr(handle, "attr", {}).get("origin")) is not None:
        offset = int(origin.offsets(data.ravel())[0])
        return f"{origin.name} + {offset}" if data.size == 1 and offset else ""
    return _lanes(data, str(getattr(value, "dtype", "")), floats)


def _lanes(data: Any, dtype: str, floats: bool) -> str:
    """One number, or the first lanes of a tile of one axis."""
    if data.dtype.kind == "f":
        return f"{float(data.ravel()[0]):.6g}" if floats and data.size == 1 else ""
    if data.dtype.kind not in "iu" or dtype in ("bf16", "int1"):
        return ""
    if data.size == 1:
        return str(int(data.ravel()[0]))
    if max(data.shape) < data.size:
        return ""  # a tile of two axes
    numbers = [int(number) for number in data.ravel()]
    if all(after - before == 1 for before, after in pairwise(numbers)):
        return f"{numbers[0]} to {numbers[-1]}"
    more = ["..."] if len(numbers) > MOST_LANES else []
    return f"[{', '.join([*map(str, numbers[:MOST_LANES]), *more])}]"
