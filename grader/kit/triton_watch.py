"""A Triton kernel under supervision: every address checked before it is touched, all work counted.

    from grader.kit.triton_watch import watching

    with watching() as seen:
        out = kernels.rms_norm(x, weight, 1e-5)
    expect(seen.loads(x) == x.numel(), "x is read more than once")

Inside `watching` every pointer remembers the tensor argument that it was made from. A load, a store or
an atomic operation that is not masked and lies outside that tensor raises a `Fault`, which names the
argument, the element and, in the report, the line of the part. A view is valid from its first element
to its last: what lies between rows of a slice belongs to it. Memory that `torch.empty` hands out
meanwhile holds NaN (the largest number, for integers): what a kernel leaves unwritten shows.

Works in Triton's interpreter (TRITON_INTERPRET=1; the grader's worker and tests/conftest.py set it).
Block pointers and tensor descriptors are checked like any other pointer. Errors inside a kernel arrive
as what they are, not wrapped in an InterpreterError.
"""

import functools
import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from grader.kit.expect import Fault
from grader.kit.poison import nothing, poisoned

OUTSIDE_WHY = (
    "The last tile of a row or of a grid reaches past the end wherever a size is no multiple of the "
    "tile: lanes out there need a mask."
)
BEFORE_WHY = "An index below 0 is no element of the tensor: mask it, or do not compute it."


@dataclass(frozen=True, slots=True)
class Origin:
    """The tensor argument that a pointer was made from. begin, end: addresses."""

    name: str
    begin: int
    end: int
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(slots=True)
class Work:
    """Of one argument: elements and bytes; lanes that are masked off do not count."""

    loads: int = 0
    stores: int = 0
    atomics: int = 0
    load_bytes: int = 0
    store_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """kernel: its name. grid: instances in x, y and z. arguments: what it was called with, by name."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: dict[str, Any]

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(slots=True)
class Seen:
    """What the kernels did. dots: calls of tl.dot. flops: of these, two for each product."""

    launches: list[Launch] = field(default_factory=list)
    dots: int = 0
    flops: int = 0
    work: dict[tuple[int, int], Work] = field(default_factory=lambda: defaultdict(Work))

    @property
    def programs(self) -> int:
        """Program instances of all launches."""
        return sum(launch.programs for launch in self.launches)

    @property
    def kernels(self) -> list[str]:
        return [launch.kernel for launch in self.launches]

    def total(self) -> Work:
        return _sum(self.work.values())

    def of(self, tensor: Tensor) -> Work:
        """The work on memory of this tensor, through whatever view of it a kernel was given."""
        begin, end = _span(tensor)
        return _sum(w for place, w in self.work.items() if begin <= place[0] and place[1] <= end)

    def loads(self, tensor: Tensor) -> int:
        return self.of(tensor).loads

    def stores(self, tensor: Tensor) -> int:
        return self.of(tensor).stores


def _sum(works: Any) -> Work:
    total = Work()
    for work in works:
        for name in Work.__dataclass_fields__:
            setattr(total, name, getattr(total, name) + getattr(work, name))
    return total


@contextmanager
def watching(*, poison: bool = True, also: tuple[Tensor, ...] = ()) -> Iterator[Seen]:
    """Check and count every kernel that is launched inside.

    poison: fill what torch.empty returns. also: tensors whose addresses a kernel finds in memory rather
    than in its arguments. Raises RuntimeError outside Triton's interpreter.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("watching() needs TRITON_INTERPRET=1 before triton is imported")
    watch = _Watch(Seen(), [_origin("a tensor", tensor) for tensor in also])
    with _patched(watch), poisoned() if poison else nothing():
        yield watch.seen


class _Watch:
    """Stands between the interpreter and memory."""

    def __init__(self, seen: Seen, also: list[Origin]) -> None:
        self.seen = seen
        self._also = also
        self._origins: list[Origin] = []

    def launch(self, kernel: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        self.seen.launches.append(Launch(kernel, grid, arguments))

    def origin_of(self, name: str, tensor: Tensor) -> Origin:
        origin = _origin(name, tensor)
        self._origins.append(origin)
        return origin

    def forget(self) -> None:
        """A launch is over: its arguments' addresses mean nothing to the next one."""
        self._origins.clear()

    def check(self, deed: str, pointers: Any, mask: Any) -> Work:
        """Raise a Fault if an address that is not masked lies outside. Otherwise what to count in."""
        addresses = pointers.data if mask is None else _active(pointers.data, mask.data)
        origin = pointers.attr.get("origin") or self._find(addresses)
        if origin is None:
            raise Fault(
                f"{deed} an address that lies in no tensor of this launch.",
                why="A pointer comes from an argument of the kernel, plus an offset in elements.",
            )
        if addresses.size:
            low, high = int(addresses.min()), int(addresses.max())
            if low < origin.begin:
                raise _outside(deed, origin, low)
            if high + origin.itemsize > origin.end:
                beyond = addresses[addresses + np.uint64(origin.itemsize) > np.uint64(origin.end)]
                raise _outside(deed, origin, int(beyond.min()))
        work = self.seen.work[origin.begin, origin.end]
        count, size = int(addresses.size), max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if deed == "It reads":
            work.loads, work.load_bytes = work.loads + count, work.load_bytes + count * size
        else:
            work.stores, work.store_bytes = work.stores + count, work.store_bytes + count * size
        return work

    def _find(self, addresses: Any) -> Origin | None:
        """Of a pointer that came out of memory or a cast: whichever tensor it points into."""
        if not addresses.size:
            return Origin("nothing", 0, 0, 1, (), ())
        first = int(addresses.flat[0])
        near = [o for o in [*self._origins, *self._also] if o.begin <= first < o.end]
        return near[0] if near else None


def _active(addresses: Any, mask: Any) -> Any:
    # `a & b` of two comparisons is int32 in the interpreter, which as an index would mean places.
    return addresses[np.broadcast_to(mask, addresses.shape).astype(bool)]


def _outside(deed: str, origin: Origin, address: int) -> Fault:
    element = (address - origin.begin) // origin.itemsize
    count = (origin.end - origin.begin) // origin.itemsize
    is_flat = len(origin.shape) < 2 or origin.stride == _contiguous(origin.shape)
    span = f"{count} elements" if is_flat else f"{count} elements from its first to its last"
    where = f"element {element} of {origin.name}, which has {span}, shape {list(origin.shape)}"
    if element >= 0 and origin.shape and (place := _place(element, origin)):
        where += f": index {place}"
    return Fault(f"{deed} {where}.", why=OUTSIDE_WHY if element >= 0 else BEFORE_WHY)


def _place(element: int, origin: Origin) -> str:
    """An offset as an index of the tensor's shape, the first one counting on past its size."""
    if any(stride <= 0 for stride in origin.stride):
        return ""
    place = [0] * len(origin.stride)
    for axis in sorted(range(len(place)), key=lambda axis: -origin.stride[axis]):
        place[axis], element = divmod(element, origin.stride[axis])
    return str(place) if element == 0 else ""


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _span(tensor: Tensor) -> tuple[int, int]:
    """First address of a view and the one behind its last element."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in pairs)
    return begin, begin + (last + 1) * tensor.element_size()


def _origin(name: str, tensor: Tensor) -> Origin:
    begin, end = _span(tensor)
    return Origin(
        name, begin, end, tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride())
    )


@contextmanager
def _patched(watch: _Watch) -> Iterator[None]:
    """The interpreter with our steps in between. Everything is put back at the end."""
    from grader.kit.triton_patches import patches

    undo: list[Callable[[], None]] = []
    try:
        for target, name, replacement in patches(watch):
            undo.append(
                functools.partial(setattr, target, name, inspect.getattr_static(target, name))
            )
            setattr(target, name, replacement)
        yield
    finally:
        for step in reversed(undo):
            step()
