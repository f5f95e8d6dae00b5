"""What a kernel's variables hold where something goes wrong: integers, runs of lanes, pointers.

    frames_here()                 of the kernel that runs, from the innermost function to the kernel
    lanes_here()                  whole tiles of integers in its innermost function
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
from types import CodeType, FrameType
from typing import Any

MOST_NUMBERS = 14
"""Of one function. Of a kernel with more, arguments go that no line up to this one uses."""
MOST_FUNCTIONS = 4
MOST_LANES = 6
WIDTH = 90
NEAR = 2**24
"""How far an offset may lie from a product that it is the sum of."""
TIED = "\N{NO-BREAK SPACE}"
GRADER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a kernel at a line. numbers: what its variables hold, as texts by name."""

    file: str
    line: int
    name: str
    numbers: dict[str, str]


def frames_here(*, narrow: bool = False) -> tuple[Frame, ...]:
    """Of the kernel that is running; its integers and pointers. narrow: say which results are int32."""
    return _chosen(_outward(sys._getframe(1)), floats=False, narrow=narrow)


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """Of the kernel that an error has passed through; none if it passed through none."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return _chosen(reversed(frames), floats=True)


def lanes_here() -> dict[str, Any]:
    """The tiles of integers, of one axis, in the innermost function of the kernel that is running."""
    for frame, _ in _outward(sys._getframe(1)):
        if not _is_ours(frame.f_code.co_filename):
            held = {name: _data(value) for name, value in frame.f_locals.items()}
            return {
                name: data.ravel()
                for name, data in held.items()
                if data is not None and data.dtype.kind in "iu" and 1 < data.size == max(data.shape)
            }
    return {}


def product_here(offsets: Any, strides: Iterable[int]) -> str:
    """Which int32 of the kernel that is running, multiplied by one of these strides in its source, was
    too large for its dtype, and so gave these offsets of lanes, or nearly those: in words, "" if none,
    or more than one."""
    wide = {stride for stride in strides if stride >= NEAR}
    found = []
    for frame, line in _outward(sys._getframe(1)):
        code = frame.f_code
        if code.co_name == "__call__" and _is_launch(frame):
            break
        if _is_ours(code.co_filename):
            continue
        lines = [
            linecache.getline(code.co_filename, i) for i in range(code.co_firstlineno, line + 1)
        ]
        factors = {name: size for name, v in frame.f_locals.items() if (size := _one(v)) in wide}
        for name, value in frame.f_locals.items():
            if name in _arguments(code) or not _is_int32(value) or (data := _data(value)) is None:
                continue
            for factor, size in factors.items():
                number = _overflown(data, size, offsets)
                if number and any(_are_multiplied(name, factor, text) for text in lines):
                    held = f"{name} = {number} is int32 in {code.co_name}, and {factor} = {size}"
                    found.append(f"{held}: their product {number * size} is no int32")
    return found[0] if len(found) == 1 else ""


def _one(value: Any) -> int | None:
    """The integer that a variable holds."""
    if type(value := getattr(value, "value", value)) is int:
        return value
    data = _data(value)
    is_one = data is not None and data.size == 1 and data.dtype.kind in "iu"
    return int(data.ravel()[0]) if is_one else None


def _overflown(data: Any, size: int, offsets: Any) -> int:
    """The first number whose product is no int32, if every lane lies where the products have led; 0 if
    they have led elsewhere."""
    shapes = [()] if data.size == 1 else [
        tuple(data.size if axis == its else 1 for axis in range(offsets.ndim))
        for its, lanes in enumerate(offsets.shape)
        if lanes == data.size
    ]  # fmt: skip
    for shape in shapes:
        products = data.astype("int64").reshape(shape) * size
        wrapped = (products + 2**31) % 2**32 - 2**31
        large = data.ravel()[(products >= 2**31).ravel()]
        if large.size and bool((abs(wrapped - offsets) < NEAR).all()):
            return int(large[0])
    return 0


def _are_multiplied(name: str, factor: str, line: str) -> bool:
    either = rf"\b{name}\b.*\*.*\b{factor}\b|\b{factor}\b.*\*.*\b{name}\b"
    return re.search(either, line.split("#")[0]) is not None


def _is_int32(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "int32"


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount]


def _data(value: Any) -> Any:
    """The lanes of a tile that is no pointer."""
    handle = getattr(value, "handle", None)
    data = getattr(handle, "data", None)
    is_tile = hasattr(data, "ravel") and "origin" not in getattr(handle, "attr", {})
    return data if is_tile else None


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


def _chosen(
    frames: Iterable[tuple[FrameType, int]], *, floats: bool, narrow: bool = False
) -> tuple[Frame, ...]:
    """Functions of kernels, from the innermost one on, up to the launch."""
    found: list[Frame] = []
    for frame, line in frames:
        code = frame.f_code
        if code.co_name == "__call__" and _is_launch(frame):
            return tuple(found)
        if not _is_ours(code.co_filename):
            numbers = _numbers(frame, line, floats)
            for name in set(numbers) - set(_arguments(code)) if narrow else ():
                if _is_int32(frame.f_locals[name]) and " " not in numbers[name]:
                    numbers[name] += " (int32)"
            found.append(Frame(code.co_filename, line, code.co_name, numbers))
    return ()


def _is_launch(frame: FrameType) -> bool:
    return type(frame.f_locals.get("self")).__name__ == "GridExecutor"


_ours: dict[str, bool] = {}


def _is_ours(file: str) -> bool:
    """Whether a line is the interpreter's or the grader's, and not of a learner's kernel."""
    if file not in _ours:
        is_graders = os.path.abspath(file).startswith(GRADER)
        _ours[file] = is_graders or f"{os.sep}triton{os.sep}" in file
    return _ours[file]


def _numbers(frame: FrameType, line: int, floats: bool) -> dict[str, str]:
    code = frame.f_code
    arguments = _arguments(code)
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
