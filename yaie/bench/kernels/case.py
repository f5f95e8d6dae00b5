"""A case: one operation at one size, and all that compute it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from yaie.parts import Parts

Run = Callable[..., Any]
DTYPE = torch.bfloat16
L2_BYTES = 60 * 2**20
"""Of an H200. Arguments that are used in turn take several times as much."""
BIG = 8 * L2_BYTES


@dataclass(slots=True)
class Problem:
    """The arguments of a case and what to do with them.

    sets: tuples of arguments that are used in turn.
    runs: by name, makes the function that is timed: imports, plans and compilation happen in there.
    picked: those parts of a result that are checked; expected: the same from a set, in float64.
    tolerance: of |got - expected| / (|expected| + root mean square of expected).
    in_place: whether a run writes over its arguments.
    capture: whether a run can be part of a CUDA graph.
    """

    sets: Sequence[tuple[Any, ...]]
    runs: dict[str, Callable[[], Run]]
    expected: Callable[..., Iterable[Tensor]]
    picked: Callable[[Any], Iterable[Tensor]] = lambda result: [result]
    tolerance: float = 0.03
    in_place: bool = False
    capture: bool = True
    check: Callable[[Any, tuple[Any, ...]], float] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """operation, size: names, free of dots and spaces. label: the size in words. work: bytes that must
    be moved, or operations of arithmetic, as `unit` says. goal: for Triton on an H200, in `unit` or ms.
    build: makes the problem, of the parts in use, on the default device."""

    operation: str
    size: str
    label: str
    unit: str
    work: float
    build: Callable[[Parts], Problem] = field(repr=False)
    goal: str = ""

    def rate(self, ms: float) -> float:
        """GB/s or TFLOP/s."""
        return self.work / ms / (1e6 if self.unit == "GB/s" else 1e9)


def copies_beyond_l2(num_bytes: int) -> int:
    """How many sets of arguments of this size to use in turn."""
    return max(1, min(64, -(-BIG // max(1, num_bytes))))


def randn(*shape: int, dtype: torch.dtype = DTYPE, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, dtype=torch.float32).mul_(scale).to(dtype)


def part(parts: Parts, lab: str, name: str) -> Callable[[], Any]:
    """Makes `name` of a lab's part in use."""
    return lambda: getattr(parts[lab], name)()


def method(parts: Parts, lab: str, kind: str, name: str) -> Callable[[], Run]:
    """A method of a part in use, made when it is wanted."""
    return lambda: getattr(part(parts, lab, kind)(), name)


def compiled(function: Run) -> Callable[[], Run]:
    """torch.compile of a function, for these shapes alone."""
    return lambda: torch.compile(function, dynamic=False)


def error_of(got: Tensor, expected: Tensor) -> float:
    """The worst |got - expected|, relative to the value and to the usual size of values; nan if not
    finite."""
    scale = expected.square().mean().sqrt().clamp_min(1e-30)
    worst = ((got.double() - expected).abs() / (expected.abs() + scale)).max()
    return float(worst)
