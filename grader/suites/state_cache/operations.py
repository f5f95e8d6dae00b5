"""How many operations of PyTorch a call takes, on how many numbers, and whether the host waits."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from grader.kit import Fault, expect, note
from grader.kit.dispatch import Watching
from grader.kit.growth import Place, line_that_grows

READS = {
    "tolist", "item", "numpy", "cpu", "nonzero", "argwhere", "unique", "masked_select", "__bool__",
    "__int__", "__float__", "__index__", "equal", "allclose", "linalg_solve", "linalg_inv", "inverse",
    "linalg_cholesky", "linalg_lu_factor", "linalg_pinv",
}  # fmt: skip
"""Functions after which the host knows a value; those of torch.linalg look whether they failed."""
AT_PLACES = {
    "index_copy_", "index_put_", "_index_put_impl_", "index_fill_", "index_add_", "scatter_", "put_",
}  # fmt: skip
"""Operations that change as many numbers of their first tensor as they are given."""
ON_DEVICE = (
    "A step is computed on the device, and the host goes on meanwhile: a value that it reads, a loop "
    "over lengths, or an index of truth values (whose number of rows it must know) makes it wait, in "
    "every layer of every step. Index tensors with tensors. torch.linalg.solve and inv read too, to see "
    "whether there is a solution."
)


@dataclass(slots=True)
class Operations:
    """count: of operations. numbers: made or written by them. lines: how many operations each line of
    the part has made. reads: what made the host wait."""

    count: int = 0
    numbers: int = 0
    lines: Counter[Place] = field(default_factory=Counter)
    reads: list[str] = field(default_factory=list)


@contextmanager
def counting(part: Any = None) -> Iterator[Operations]:
    """Of what runs inside. part: whose lines are counted, if any."""
    seen = Operations()
    home = str(Path(getattr(part, "__file__", None) or "?").parent) + os.sep

    class Counted(Watching):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.count += 1
            frame = sys._getframe(1) if part is not None else None
            while frame is not None and not frame.f_code.co_filename.startswith(home):
                frame = frame.f_back
            if frame is not None:
                seen.lines[frame.f_code.co_filename, frame.f_lineno] += 1
            out = func(*args, **(kwargs or {}))
            seen.numbers += _numbers(func, args, out)
            return out

    class Reading(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            if name in READS or (name == "__getitem__" and _by_truth(args[1])):
                seen.reads.append("an index of truth values" if name == "__getitem__" else name)
            if name == "repeat_interleave" and _by_numbers(args, kwargs or {}):
                seen.reads.append("repeat_interleave without output_size")
            return func(*args, **(kwargs or {}))

    with Counted(), Reading():
        yield seen


def _numbers(func: Any, args: Any, out: Any) -> int:
    """How many numbers an operation makes or writes; a view of what was there is none."""
    given = [one for one in args if isinstance(one, Tensor)]
    name = func._schema.name.rpartition(":")[2]
    if name in AT_PLACES:
        return max((one.numel() for one in given[1:]), default=0)
    if func._schema.is_mutable:
        return given[0].numel() if given else 0
    before = {one.untyped_storage().data_ptr() for one in given}
    made = out if isinstance(out, tuple | list) else [out]
    return sum(
        one.numel()
        for one in made
        if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in before
    )


def _by_truth(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, Tensor) and one.dtype == torch.bool for one in parts)


def _by_numbers(args: Any, kwargs: dict[str, Any]) -> bool:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats")
    return isinstance(repeats, Tensor) and kwargs.get("output_size") is None


def expect_no_reads(call: Callable[[], Any], what: str) -> None:
    """The host reads nothing of what is computed."""
    with counting() as seen:
        call()
    told = ", ".join(dict.fromkeys(seen.reads))
    expect(not seen.reads, f"{what} makes the host wait for the device: {told}", why=ON_DEVICE)


def expect_as_many(
    part: Any, what: str, few: Callable[[], Any], many: Callable[[], Any], told: str, why: str
) -> None:
    """Two calls take the same number of operations. told: how they differ, as in "4 tokens and 32"."""
    note(f"# {what}, with {told}")
    found = []
    for call in (few, many):
        with counting(part) as seen:
            call()
        found.append(seen)
    one, other = found
    if other.count > one.count:
        grown = (other.lines - one.lines).most_common(1)
        raise Fault(
            f"{what} takes {one.count} operations of PyTorch and then {other.count}: with {told}",
            why=why,
            line=grown[0][0] if grown else None,
        )


def expect_as_much(
    part: Any, what: str, few: Callable[[], Any], many: Callable[[], Any], told: str, why: str
) -> None:
    """Two calls make and write about as many numbers. told: how they differ. The second may have one
    more for each slot, as a list of slots has, and not what slots hold."""
    note(f"# {what}, with {told}")
    numbers = []
    for call in (few, many):
        with counting() as seen:
            call()
        numbers.append(seen.numbers)
    if numbers[1] > 2 * numbers[0]:
        raise Fault(
            f"{what} makes and writes {numbers[0]:,} numbers and then {numbers[1]:,}: with {told}",
            why=why,
            line=line_that_grows(part, few, many),
        )
