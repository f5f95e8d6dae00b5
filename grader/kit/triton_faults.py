"""What is said of an access outside its tensor: where it went, and why if the evidence tells.

Lanes of a tile that run on from the last valid one lack a mask. Lanes, or programs, whose steps are no
step of this tensor use a stride that is not its own. Anything else may be either, and both are told.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from grader.kit.expect import Fault
from grader.kit.layout import STRIDE_WHY, contiguous_strides, index_before, where_is

OUTSIDE_WHY = (
    "The last tile of a row or of a grid reaches past the end wherever a size is no multiple of the "
    "tile: lanes out there need a mask."
)
MASKED = " The mask of this access lets such a lane through."
BEFORE_WHY = "An index below 0 is no element of the tensor: mask it, or do not compute it."
EITHER_WHY = (
    "A lane or a program past the end that is not masked gets here, and so does an index times a stride "
    "that is not this tensor's. Without a mask only the last tile goes wrong; with another stride every "
    "index but 0 does. Compare the numbers above with the tensor's strides."
)
MOST_NAMES = 3
"""Of numbers that are all equal."""
LEAST_TAIL = 2
"""Neighbouring programs before this one, equally far apart, before their distance counts as a step."""

Program = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Origin:
    """The tensor argument that a pointer was made from. begin, end: addresses. has_gaps: not every
    address in between is one of its elements."""

    name: str
    begin: int
    end: int
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    has_gaps: bool = False

    def offsets(self, addresses: Any) -> Any:
        """Addresses as elements from the first, signed."""
        return (addresses.astype(np.int64) - self.begin) // self.itemsize

    def are_elements(self, offsets: Any) -> Any:
        """Which offsets belong to an index of the tensor."""
        rest = offsets
        inside = offsets >= 0
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.stride[axis]):
            if self.shape[axis] > 1:
                index, rest = np.divmod(rest, self.stride[axis])
                inside = inside & (index < self.shape[axis])
        return inside & (rest == 0)


def origin_of(name: str, tensor: Tensor) -> Origin:
    begin, end = span(tensor)
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    size = tensor.element_size()
    # A view of overlapping elements (an expanded one) cannot be taken apart, and has no gaps.
    has_gaps = tensor.numel() < (end - begin) // size and all(s > 0 for s in stride)
    return Origin(name, begin, end, size, shape, stride, has_gaps)


def span(tensor: Tensor) -> tuple[int, int]:
    """First address of a view and the one behind its last element."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in pairs)
    return begin, begin + (last + 1) * tensor.element_size()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when an access goes wrong.

    pointers, active: of the tile, lane by lane. bases: (program, first offset) of this access in the
    programs before. numbers: integers that the kernel was called with. others: its other tensors. why:
    what the test says of strides, if anything. lanes: tiles of integers in the function that makes it.
    """

    deed: str
    origin: Origin
    pointers: Any
    active: Any
    bases: list[tuple[Program, int]]
    program: Program
    numbers: dict[str, int]
    others: list[Origin]
    why: str = ""
    lanes: dict[str, Any] = field(default_factory=dict)


def outside(evidence: Evidence, address: int) -> Fault:
    """The fault of an access whose address is no element of its tensor."""
    origin = evidence.origin
    offset = (address - origin.begin) // origin.itemsize
    is_gap = origin.begin <= address < origin.end
    where = _where(origin, offset, is_gap=is_gap)
    for step, who in _steps(evidence):
        whose = _whose(step, evidence)
        # Without a number that it may come from, any step within a row of a row is one of the tensor's.
        if not _is_step_of(step, origin if whose else _collapsed(origin)):
            told = f"{who} {step} elements apart{whose}; "
            told += f"{origin.name}'s strides are {list(origin.stride)}."
            return Fault(f"{evidence.deed} {where}. {told}", why=evidence.why or STRIDE_WHY)
    if offset < 0:
        return Fault(f"{evidence.deed} {where}.", why=BEFORE_WHY)
    if evidence.pointers.size == 1 and address >= origin.end and offset in evidence.program:
        return Fault(f"{evidence.deed} {where}.", why=_past(evidence, offset))
    # Where two numbers of a program lead along one dimension, one may be multiplied by the wrong stride.
    axes = [step for step in _program_steps(evidence) if step % _outermost(origin) == 0]
    if _runs_on(evidence, address) or (address >= origin.end and len(axes) == 1):
        # Where all lanes are active there may be a mask or none.
        more = "" if bool(evidence.active.all()) else MASKED
        return Fault(f"{evidence.deed} {where}.", why=OUTSIDE_WHY + more)
    if told := _gathered(evidence):
        return Fault(f"{evidence.deed} {where}. {told}", why=evidence.why or STRIDE_WHY)
    if told := _of_one_index(evidence):
        return Fault(f"{evidence.deed} {where}. {told}", why=evidence.why or STRIDE_WHY)
    begins = _begins(evidence, address, offset) if is_gap else ""
    why = evidence.why or f"{EITHER_WHY}{_given(evidence)}"
    return Fault(f"{evidence.deed} {where}.{begins}", why=why)


def _given(evidence: Evidence) -> str:
    """Which of the launch's numbers have the name and the value of a stride of this tensor."""
    shape, strides = evidence.origin.shape, evidence.origin.stride
    found = []
    for name, value in evidence.numbers.items():
        axes = [a for a, stride in enumerate(strides) if stride == value > 1 and shape[a] > 1]
        if "stride" in name.lower() and len(axes) == 1:
            found.append(f"{name} is {evidence.origin.name}'s stride of dimension {axes[0]}")
    return f" Of the launch's numbers, {', '.join(found[:MOST_NAMES])}." if found else ""


def _of_one_index(evidence: Evidence) -> str:
    """Of lanes that go by the stride of a dimension with one index, and of which a mask lets as many
    through as another dimension has."""
    origin = evidence.origin
    pairs = list(zip(origin.shape, origin.stride, strict=True))
    for axis, step in _lane_steps(evidence):
        rest = tuple(other for other in range(evidence.active.ndim) if other != axis)
        count = int(evidence.active.any(axis=rest).sum())
        meant = [a for a, (size, _) in enumerate(pairs) if size == count > 1]
        taken = [a for a, (size, stride) in enumerate(pairs) if size == 1 and stride == step]
        is_cut = count < evidence.active.shape[axis]
        if is_cut and len(meant) == len(taken) == 1 and step != (own := pairs[meant[0]][1]):
            return (
                f"Neighbouring lanes of the tile are {step} elements apart. {count} of them read, one "
                f"for each index of dimension {meant[0]}, whose stride is {own}."
            )
    return ""


def _gathered(evidence: Evidence) -> str:
    """Of a tile whose lanes go by numbers out of a table: the wrong stride that these were given."""
    origin = evidence.origin
    if len(origin.shape) < 2 or not evidence.active.any():
        return ""
    axis = max(range(len(origin.shape)), key=lambda axis: origin.stride[axis])
    own = origin.stride[axis]
    inner = [
        (n, s)
        for a, (n, s) in enumerate(zip(origin.shape, origin.stride, strict=True))
        if a != axis
    ]
    extent = 1 + sum((size - 1) * stride for size, stride in inner)
    dense = contiguous_strides(origin.shape)[axis]
    words = {dense: f", as if {origin.name} were contiguous"}
    for other in evidence.others:
        if other.name != origin.name and len(other.shape) == len(origin.shape):
            words.setdefault(
                other.stride[axis], f", which is {other.name}'s stride of dimension {axis}"
            )
    offsets = origin.offsets(evidence.pointers)
    for name, lanes in evidence.lanes.items():
        shape = [len(lanes) if size == len(lanes) else 1 for size in offsets.shape]
        if shape.count(len(lanes)) != 1 or len(np.unique(np.diff(lanes))) < LEAST_TAIL:
            continue
        numbers = np.broadcast_to(lanes.astype(np.int64).reshape(shape), offsets.shape)

        def leads(step: int, numbers: Any = numbers) -> bool:
            rest = (offsets - numbers * step)[evidence.active]
            return bool((rest >= 0).all() and (rest < extent).all())

        found = [step for step in words if step != own and leads(step)]
        if len(found) == 1 and not leads(own):
            told = f"The numbers in {name} are multiplied by {found[0]}{words[found[0]]}"
            return f"{told}; {origin.name}'s strides are {list(origin.stride)}."
    return ""


def _past(evidence: Evidence, offset: int) -> str:
    """Of one number that a program reads or writes at its own number, which is too large."""
    axis, name = evidence.program.index(offset), evidence.origin.name
    return (
        f"program_id({axis}) is {offset} here, and {name} has no element of that number. Either the "
        f"grid has too many programs along that axis, or {name} is not the tensor of this call."
    )


def _where(origin: Origin, offset: int, *, is_gap: bool) -> str:
    if is_gap:
        place = where_is(offset, origin.shape, origin.stride)
        return f"offset {offset} of {origin.name}, which is no element of it: {place}"
    count = (origin.end - origin.begin) // origin.itemsize
    is_flat = len(origin.shape) < 2 or origin.stride == contiguous_strides(origin.shape)
    reach = f"{count} element{'s' * (count != 1)}"
    reach += "" if is_flat else " from its first to its last"
    told = f"element {offset} of {origin.name}, which has {reach}, shape {list(origin.shape)}"
    if not is_flat:
        told += f", strides {list(origin.stride)}"
    if offset >= 0 and origin.shape and (place := _place(offset, origin)):
        told += f": index {place}"
    return told


def _place(element: int, origin: Origin) -> str:
    """An offset as an index of the tensor's shape, the first one counting on past its size."""
    if any(stride <= 0 for stride in origin.stride):
        return ""
    place = [0] * len(origin.stride)
    for axis in sorted(range(len(place)), key=lambda axis: -origin.stride[axis]):
        place[axis], element = divmod(element, origin.stride[axis])
    return str(place) if element == 0 else ""


def _steps(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """(elements, whose) of each even step that this access makes."""
    for _, step in _lane_steps(evidence):
        yield step, "Neighbouring lanes of the tile are"
    for step in _program_steps(evidence):
        yield step, "Neighbouring programs begin"


def _lane_steps(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """(axis of the tile, step) wherever all neighbours along it are equally far apart."""
    offsets = evidence.origin.offsets(evidence.pointers)
    for axis, size in enumerate(offsets.shape):
        steps = np.unique(np.diff(offsets, axis=axis)) if size > 1 else np.empty(0)
        if len(steps) == 1:
            yield axis, int(steps[0])


def _program_steps(evidence: Evidence) -> Iterator[int]:
    """How far apart programs begin that are neighbours along one axis of the grid, if it is always the
    same, or at once if a number or a stride of this launch says so."""
    offsets = evidence.origin.offsets(evidence.pointers)[evidence.active]
    begins = dict(evidence.bases) | {evidence.program: int(offsets.min())}
    for axis in range(3):
        line = [begins[evidence.program]]
        before = list(evidence.program)
        while before[axis] > 0 and len(line) <= LEAST_TAIL:
            before[axis] -= 1
            if (begin := begins.get((before[0], before[1], before[2]))) is None:
                break
            line.append(begin)
        steps = {new - old for new, old in pairwise(line)}
        step = steps.pop() if len(steps) == 1 else 0
        if step and (len(line) > LEAST_TAIL or _whose(step, evidence)):
            yield step


def _is_step_of(step: int, origin: Origin) -> bool:
    """Whether a step leads along one dimension of the tensor."""
    return any(
        stride > 0 and step % stride == 0 and abs(step) // stride < max(size, 2)
        for size, stride in zip(origin.shape, origin.stride, strict=True)
    )


def _collapsed(origin: Origin) -> Origin:
    """The tensor with dimensions joined that follow each other without a gap."""
    shape: list[int] = []
    strides: list[int] = []
    for size, stride in zip(origin.shape, origin.stride, strict=True):
        if strides and strides[-1] == size * stride:
            shape[-1], strides[-1] = shape[-1] * size, stride
        else:
            shape.append(size)
            strides.append(stride)
    return replace(origin, shape=tuple(shape), stride=tuple(strides))


def _whose(step: int, evidence: Evidence) -> str:
    """Which of the launch's numbers a step is."""
    names = [name for name, value in evidence.numbers.items() if value == step and step > 1]
    for other in evidence.others:
        axes = [axis for axis, stride in enumerate(other.stride) if stride == step > 1]
        if other.name != evidence.origin.name and axes and other.shape[axes[0]] > 1:
            names.append(f"{other.name}'s stride of dimension {axes[0]}")
    names = list(dict.fromkeys(names))[:MOST_NAMES]
    return f", which is {' and '.join(names)}" if names else ""


def _runs_on(evidence: Evidence, address: int) -> bool:
    """Whether a tile leaves the tensor at its last element, or a row whose beginning it reads too.

    Then a mask is missing. Where a tile leaves an inner dimension, the next index of an outer one may be
    what it meant, and its stride may be what is wrong.
    """
    origin, offsets = evidence.origin, evidence.origin.offsets(evidence.pointers)
    lanes = np.argwhere(evidence.active & (evidence.pointers == np.uint64(address)))
    for axis, step in _lane_steps(evidence):
        before = lanes[0].copy()
        before[axis] -= 1
        if before[axis] < 0 or not evidence.active[tuple(before)]:
            continue
        if not bool(origin.are_elements(offsets[tuple(before)])):
            continue
        first = before.copy()
        first[axis] = 0
        column = index_before(int(offsets[tuple(first)]), origin.shape, origin.stride)[-1:]
        is_row = step == 1 and column and column[0] % offsets.shape[axis] == 0
        if is_row or (
            step > 0 and _is_far(int(offsets[tuple(first)]), step, offsets.shape[axis], origin)
        ):
            return True
    return False


def _outermost(origin: Origin) -> int:
    """The largest stride of a dimension that has more than one index."""
    return max((s for n, s in zip(origin.shape, origin.stride, strict=True) if n > 1), default=1)


def _is_far(first: int, step: int, lanes: int, origin: Origin) -> bool:
    """Whether a tile goes along the outermost dimension, from a multiple of its size on."""
    outermost = _outermost(origin)
    if outermost == 1:  # one row, which a tile may begin anywhere in
        return True
    return step % outermost == 0 and first // outermost % (lanes * (step // outermost)) == 0


def _begins(evidence: Evidence, address: int, offset: int) -> str:
    """Of a tile whose first lane is what lies outside: the element that comes next."""
    if int(evidence.pointers[evidence.active].min()) != address:
        return ""
    origin = evidence.origin
    before = index_before(offset, origin.shape, origin.stride)
    following = [
        (sum(i * s for i, s in zip(index, origin.stride, strict=True)), index)
        for axis, size in enumerate(origin.shape)
        if (index := [*before[:axis], before[axis] + 1, *[0] * (len(before) - axis - 1)])[axis]
        < size
    ]
    if not (later := [one for one in following if one[0] > offset]):
        return ""
    place, index = min(later)
    return f" The tile begins there; element {index} lies at offset {place}."
