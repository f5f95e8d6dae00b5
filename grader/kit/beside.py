"""What a part has PyTorch do beside its launches: on a GPU each such operation is a launch as well."""

import linecache
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

from torch import Tensor

from grader.kit.dispatch import Watching
from grader.kit.expect import expect

FREE = ("empty", "new_empty", "_unsafe_view", "_reshape_alias", "as_strided")
"""What the names of operations begin with that move nothing."""
SPOKEN = {"_local_scalar_dense": "item", "_to_copy": "to", "max.dim": "max"}
MOST_LETTERS = 80
"""Of a line of the part that is quoted."""
MOST_LINES = 4
LAUNCH = "On a GPU each operation of PyTorch is a launch of its own, which reads and writes memory."
WAITS = (
    "The host waits here until the GPU has computed the number, in every step. "
    "What depends on it is decided in the kernel."
)
ZEROS = "A result that the kernel writes needs no zeros to begin with: torch.empty is enough."
DENSE = "A kernel finds rows by their strides: gaps need no copy."
COPY = "Nothing here needs a copy: the kernel reads and writes the tensor itself."
DTYPE = "A kernel converts what it loads, and what it stores."
INTEGER = "A kernel loads integers of any width: they are not converted before."
TABLE = "A kernel reads the positions or slots itself, and loads the rows that they name."
INSTEAD = "Here the kernel has these numbers in registers, or can load them once."


@dataclass(frozen=True, slots=True)
class Operation:
    """name: PyTorch's. code: the expression of the part that calls it, "" where it is not known. where:
    as "layer_kernels.py, line 12". has_gaps: of what it is given, whether it is a tensor with gaps.
    is_integer: whether it is one of integers."""

    name: str
    code: str
    where: str
    has_gaps: bool
    is_integer: bool


class Beside(Watching):
    """operations: that the part's own host code has called, in order, without views and memory that is
    only reserved."""

    def __init__(self, part: ModuleType) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._folder = os.path.dirname(part.__file__ or "") + os.sep

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is; the call is noted."""
        name = func._schema.name.rpartition(":")[2]
        if not name.startswith(FREE) and not _is_view(func) and (frame := self._part_calling()):
            name = SPOKEN.get(name, name.strip("_"))
            where = f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
            given = args[0] if args else None
            has_gaps = isinstance(given, Tensor) and not given.is_contiguous()
            is_integer = isinstance(given, Tensor) and not given.dtype.is_floating_point
            operation = Operation(name, _expression(frame), where, has_gaps, is_integer)
            self.operations.append(operation)
        return func(*args, **(kwargs or {}))

    def _part_calling(self) -> FrameType | None:
        """The part's frame; None where it is the interpreter, which copies what a launch is given."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._folder):
                return frame
            if file.endswith("interpreter.py"):
                return None
            frame = frame.f_back
        return None


def expect_nothing_beside(operations: Sequence[Operation], what: str) -> None:
    """operations: of `Beside`. what: the method that was called."""
    lines: dict[str, list[str]] = {}
    for operation in operations:
        lines.setdefault(operation.where, []).append(operation.code or operation.name)
    told = [f"{', '.join(dict.fromkeys(codes))} ({where})" for where, codes in lines.items()]
    names = "; ".join(told[:MOST_LINES])
    if len(told) > MOST_LINES:
        names += f"; and {len(told) - MOST_LINES} more lines"
    expect(not told, f"{what} calls PyTorch beside its launch: {names}", why=_why(operations))


def _why(operations: Sequence[Operation]) -> str:
    """What each kind of these operations costs, and what a kernel does instead."""
    names = {operation.name for operation in operations}
    found = []
    if names & {"item", "is_nonzero", "equal"}:
        found.append(WAITS)
    if names & {"zeros", "zero", "zeros_like", "fill", "full", "new_zeros"}:
        found.append(ZEROS)
    copies = [one for one in operations if one.name in ("clone", "copy")]
    if any(one.has_gaps and "clone(" not in one.code for one in copies):
        found.append(DENSE)
    elif any(one.name == "clone" for one in copies):
        found.append(COPY)
    for is_integer, words in ((True, INTEGER), (False, DTYPE)):
        if any(one.is_integer == is_integer for one in operations if one.name == "to"):
            found.append(words)
    if names & {
        "index",
        "index_select",
        "gather",
        "index_put",
        "embedding",
        "index_copy",
        "scatter",
    }:
        found.append(TABLE)
    return " ".join([LAUNCH, *(found or [INSTEAD])])


def _is_view(func: Any) -> bool:
    aliases = [one.alias_info for one in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _expression(frame: FrameType) -> str:
    """The source of the call that a frame is in."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):  # Python 3.10
        return ""
    place = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, begin, end = place
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [
        linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)
    ]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = " ".join(b"".join(lines).decode(errors="replace").split())
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
