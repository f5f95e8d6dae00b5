"""A Triton kernel under supervision: every address checked before it is touched, all work counted.

    from grader.kit.triton_watch import watching

    with watching() as seen:
        out = kernels.rms_norm(x, weight, 1e-5)
    expect(seen.loads(x) == x.numel(), "x is read more than once")

Inside `watching` every pointer remembers the tensor argument that it was made from. A load, a store or
an atomic operation that is not masked and lies outside that tensor raises a `Fault`, which names the
argument, the element and, in the report, the line of the part; `triton_faults` words it. What lies
between the rows of a view is outside too. Memory that `torch.empty` hands out meanwhile holds NaN (the
largest number, for integers): what a kernel leaves unwritten shows. So do lanes that a load masks off
without `other`, once they are counted.

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

from grader.kit.axes import launched
from grader.kit.expect import Fault
from grader.kit.poison import nothing, poisoned
from grader.kit.triton_faults import Evidence, Origin, Program, origin_of, outside, span
from grader.kit.triton_frames import frames_here, lanes_here, line_here, product_here, told

FAR = 2**30
"""Elements outside of a tensor: where an offset that was no int32 leads."""


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


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of one program. deed: "reads" or "writes". argument: the tensor's name.
    elements: the offsets of its lanes, masked ones left out, from the first element of `origin`. file,
    line: of the part, where it is made."""

    kernel: str
    program: Program
    deed: str
    argument: str
    elements: Any
    origin: Origin
    file: str = ""
    line: int = 0


@dataclass(slots=True)
class Seen:
    """What the kernels did. dots: calls of tl.dot. flops: of these, two for each product. precisions: of
    each product of float32, "ieee", "tf32" or what else input_precision says; "" of other dtypes.
    accesses: all of them, in order, if that was asked for."""

    launches: list[Launch] = field(default_factory=list)
    dots: int = 0
    flops: int = 0
    precisions: list[str] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
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
        begin, end = span(tensor)
        return _sum(w for place, w in self.work.items() if begin <= place[0] and place[1] <= end)

    def loads(self, tensor: Tensor) -> int:
        return self.of(tensor).loads

    def stores(self, tensor: Tensor) -> int:
        return self.of(tensor).stores

    def read_by(self, tensor: Tensor, index: tuple[int, ...]) -> list[Program]:
        """The programs that read an element, in order; needs `watching(record=True)`."""
        return self._by("reads", tensor, index)

    def written_by(self, tensor: Tensor, index: tuple[int, ...]) -> list[Program]:
        return self._by("writes", tensor, index)

    def _by(self, deed: str, tensor: Tensor, index: tuple[int, ...]) -> list[Program]:
        address = tensor[index].data_ptr()
        return [
            access.program
            for access in self.accesses
            if access.deed == deed
            and (access.origin.offsets(np.int64(address)) == access.elements).any()
        ]


def _sum(works: Any) -> Work:
    total = Work()
    for work in works:
        for name in Work.__dataclass_fields__:
            setattr(total, name, getattr(total, name) + getattr(work, name))
    return total


@contextmanager
def watching(
    *, poison: bool = True, also: tuple[Tensor, ...] = (), record: bool = False, why: str = ""
) -> Iterator[Seen]:
    """Check and count every kernel that is launched inside.

    poison: fill what torch.empty returns. also: tensors whose addresses a kernel finds in memory, not
    in its arguments. record: keep each access. why: the test's advice where a wrong stride is, or
    may be, what led outside. Raises RuntimeError outside Triton's interpreter.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("watching() needs TRITON_INTERPRET=1 before triton is imported")
    watch = _Watch(Seen(), [origin_of("a tensor", tensor) for tensor in also], record, why)
    with _patched(watch), poisoned() if poison else nothing():
        yield watch.seen


class _Watch:
    """Stands between the interpreter and memory."""

    def __init__(self, seen: Seen, also: list[Origin], record: bool, why: str) -> None:
        self.seen = seen
        self._also = also
        self._record = record
        self._why = why
        self._origins: list[Origin] = []
        self._program: Program = (0, 0, 0)
        # Of each access, told apart by its tensor and how many there were before it in the program.
        self._bases: dict[tuple[str, int], list[tuple[Program, int]]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)

    def launch(self, kernel: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        self.seen.launches.append(Launch(kernel, grid, arguments))
        launched(kernel, grid)
        self._bases.clear()

    def begin(self, program: Program) -> None:
        """A program of the grid starts."""
        self._program = program
        self._counts.clear()

    def origin_of(self, name: str, tensor: Tensor) -> Origin:
        origin = origin_of(name, tensor)
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
        self._counts[origin.name] += 1
        if addresses.size:
            bases = self._bases[origin.name, self._counts[origin.name]]
            if (bad := _first_outside(origin, addresses)) is not None:
                evidence = self._evidence(deed, origin, pointers, mask, bases)
                offset = int(origin.offsets(np.uint64(bad)))
                raise self._seen_at(outside(evidence, bad), evidence, offset)
            bases.append((self._program, int(origin.offsets(addresses.min()))))
            if self._record:
                self._note(deed, origin, addresses)
        work = self.seen.work[origin.begin, origin.end]
        count, size = int(addresses.size), max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if deed == "It reads":
            work.loads, work.load_bytes = work.loads + count, work.load_bytes + count * size
        else:
            work.stores, work.store_bytes = work.stores + count, work.store_bytes + count * size
        return work

    def _seen_at(self, fault: Fault, evidence: Evidence, offset: int) -> Fault:
        """With the functions that led there, and what their variables hold. offset: of the access."""
        is_far = not -FAR < offset < FAR  # an integer may have been too narrow
        offsets = evidence.origin.offsets(evidence.pointers)
        product = product_here(offsets, evidence.origin.stride) if is_far else ""
        if product:
            fault.problem = f"{product}. {fault.problem}"
        frames = frames_here(narrow=is_far and not product)
        fault.frames = [(frame.file, frame.line, frame.name) for frame in frames]
        fault.state = told(frames, self._program)
        fault.offsets, fault.active = offsets, evidence.active
        return fault

    def _evidence(
        self, deed: str, origin: Origin, pointers: Any, mask: Any, bases: list[tuple[Program, int]]
    ) -> Evidence:
        shape = pointers.data.shape
        active = np.ones(shape, bool) if mask is None else np.broadcast_to(mask.data, shape)
        arguments = self.seen.launches[-1].arguments
        numbers = {n: v for n, v in arguments.items() if type(v) is int}
        return Evidence(
            deed,
            origin,
            pointers.data,
            active.astype(bool),
            bases,
            self._program,
            numbers,
            self._origins,
            self._why,
            lanes=lanes_here(),
        )

    def _note(self, deed: str, origin: Origin, addresses: Any) -> None:
        kernel = self.seen.launches[-1].kernel
        offsets = origin.offsets(addresses).ravel()
        told = deed.split()[-1]
        file, line, _ = line_here()
        self.seen.accesses.append(
            Access(kernel, self._program, told, origin.name, offsets, origin, file, line)
        )

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


def _first_outside(origin: Origin, addresses: Any) -> int | None:
    """The lowest address that is no element of the tensor: before it, between its rows, or behind."""
    low, high = int(addresses.min()), int(addresses.max())
    if low < origin.begin:
        return low
    if origin.has_gaps:
        between = addresses[~origin.are_elements(origin.offsets(addresses))]
        return int(between.min()) if between.size else None
    if high + origin.itemsize > origin.end:
        return int(addresses[addresses + np.uint64(origin.itemsize) > np.uint64(origin.end)].min())
    return None


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
