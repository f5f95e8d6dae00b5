"""What the suite of lab 19 measures with: which code would be nearest, and how much a call makes."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from grader.kit import Mismatch, expect
from grader.kit.dispatch import Watching
from grader.kit.kernels import random
from grader.suites.quantization.code_kinds import WRAPPED, why_codes
from solutions import quantization as reference
from solutions.quantization import int4 as reference_int4
from yaie.core.quantized import Int4Weight

WORDS = {"to_words": reference_int4.to_words, "from_words": reference_int4.from_words}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
OURS = tuple(os.path.join(ROOT, name) + os.sep for name in ("grader", "solutions", "yaie"))
STORED = (
    "The scale that is stored is the one that the codes will be multiplied by: round it to its dtype "
    "first, and divide by that."
)
ROW = (
    "Each output has a scale of its own: with one for all, the largest row decides for the others."
)


@contextmanager
def given_words(part: ModuleType) -> Iterator[None]:
    """The reference's packing in place of the learner's, which has a task of its own."""
    module = getattr(part, "int4", None)
    mine = {name: vars(module)[name] for name in WORDS if name in vars(module or object)}
    try:
        for name in mine:
            setattr(module, name, WORDS[name])
        yield
    finally:
        for name, value in mine.items():
            setattr(module, name, value)


def weights(out: int, inputs: int, seed: int = 0) -> Tensor:
    """Rows of different sizes, none of them symmetric."""
    rows = torch.randn(out, inputs, generator=torch.Generator().manual_seed(seed))
    return (rows + 0.3) * (1 + torch.arange(out) % 5)[:, None] / 8


def packed(
    out: int, inputs: int, size: int, *, symmetric: bool = False, seed: int = 0
) -> Int4Weight:
    """A weight that the reference has rounded."""
    return reference.Int4().quantize(weights(out, inputs, seed), size, symmetric=symmetric)


def inputs_of(rows: int, width: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return random(rows, width, seed=seed, dtype=dtype)


def expect_nearest(
    weight: Tensor, codes: Tensor, grid: tuple[Tensor, Tensor], lowest: int, highest: int, what: str,
    why: str = "",
) -> None:  # fmt: skip
    """No other code from `lowest` to `highest` stands for a number nearer to the weight [out, n].

    grid: scales and zeros [out], as they are stored. why: of codes beyond the range; of others what they
    are the codes of.
    """
    scales, zeros = (part.double()[:, None] for part in grid)
    wide = weight.double()
    expect(codes.shape == weight.shape, f"{what}: codes of shape {list(codes.shape)}", why=why)
    beyond = (codes < lowest) | (codes > highest)
    if bool(beyond.any()):
        first = tuple(beyond.nonzero()[0].tolist())
        problem = f"{what}: a code of {int(codes[first])} at {list(first)}"
        raise Mismatch(problem, f"{lowest} to {highest}", str(int(codes[first])), why)
    error = ((codes.double() - zeros) * scales - wide).abs()
    best = (wide / scales + zeros).round().clamp(lowest, highest)
    least = ((best - zeros) * scales - wide).abs()
    worse = error > least + 1e-3 * scales
    if bool(worse.any()):
        at = tuple(worse.nonzero()[0].tolist())
        scale, zero = float(scales[at[0], 0]), int(zeros[at[0], 0])
        raise Mismatch(
            f"{what}: the code of {float(wide[at]):.5g} at {list(at)} is not the nearest "
            f"(scale {scale:.5g}, zero {zero})",
            str(int(best[at])),
            str(int(codes[at])),
            _why_wrong(weight, codes, grid, lowest, highest, why),
        )


def _why_wrong(
    weight: Tensor, codes: Tensor, grid: tuple[Tensor, Tensor], lowest: int, highest: int, why: str
) -> str:
    found = why_codes(weight, codes, grid, lowest, highest, STORED)
    return why if found == WRAPPED and why else found


@dataclass(slots=True)
class Made:
    """Tensors that a call made, views left out: (operation, shape, dtype) of each. peak: how many bytes
    of them there were at once. at_peak: (shape and dtype, the part's line) of each of those."""

    results: list[tuple[str, tuple[int, ...], torch.dtype]] = field(default_factory=list)
    peak: int = 0
    at_peak: list[tuple[str, str]] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _there: dict[int, tuple[StorageWeakRef, int, tuple[str, str]]] = field(default_factory=dict)

    def add(self, name: str, tensor: Tensor) -> None:
        """name: of the operation that has made it."""
        self.results.append((name, tuple(tensor.shape), tensor.dtype))
        self._lines.append(_line_of_the_part())
        storage = tensor.untyped_storage()
        there = {at: one for at, one in self._there.items() if not one[0].expired()}
        # A view of what another operation has made is that one's.
        _, _, made = there.get(storage._cdata, (None, 0, (_told(tensor), self._lines[-1])))
        there[storage._cdata] = StorageWeakRef(storage), storage.nbytes(), made
        self._there = there
        if (now := sum(size for _, size, _ in there.values())) > self.peak:
            self.peak, self.at_peak = now, [made for _, _, made in there.values()]

    def lines_of(self, fits: Callable[[tuple[int, ...]], bool]) -> list[tuple[str, str]]:
        """(operation, the part's line) of each tensor whose shape fits."""
        found = zip(self.results, self._lines, strict=True)
        return [(name, line) for (name, shape, _), line in found if fits(shape)]

    def left(self) -> list[tuple[int, tuple[str, str]]]:
        """(bytes, as at_peak) of the tensors that are still there."""
        return [(size, made) for at, size, made in self._there.values() if not at.expired()]

    def largest(self) -> tuple[int, str]:
        """(numbers, what it is) of the largest."""
        if not self.results:
            return 0, "nothing"
        found = zip(self.results, self._lines, strict=True)
        (name, shape, dtype), line = max(found, key=lambda one: torch.Size(one[0][1]).numel())
        told = f"{list(shape)} {str(dtype)[6:]} by {name}{line and f' ({line})'}"
        return torch.Size(shape).numel(), told


def _told(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype)[6:]}"


def _line_of_the_part() -> str:
    """As "line 20 of int4.py": the innermost line that is neither PyTorch's nor the grader's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *OURS)) and f"{os.sep}torch{os.sep}" not in file:
            return f"line {frame.f_lineno} of {os.path.basename(file)}"
        frame = frame.f_back
    return ""


def told_of(tensors: list[tuple[str, str]]) -> str:
    """The most frequent of (shape and dtype, line), in words."""
    if not tensors:
        return ""
    (what, line), count = Counter(tensors).most_common(1)[0]
    made = f", made in {line}" if line else ""
    return f"{count} tensor{'s' * (count > 1)} {what}{made}"


@contextmanager
def making(*inputs: Tensor) -> Iterator[Made]:
    """Notes every tensor that operations of PyTorch make inside, unless it is a view of `inputs`."""
    made = Made()
    theirs = {tensor.untyped_storage().data_ptr() for tensor in inputs}

    class Noting(Watching):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in tree_leaves(out):
                if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in theirs:
                    made.add(str(func).split(".")[1], one)
            return out

    with Noting():
        yield made
