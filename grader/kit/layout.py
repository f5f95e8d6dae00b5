"""Views with gaps between their elements, and what explains a value that came from the wrong place.

    x, residual = padded_apart(x, residual)    # same values; no stride of one is the other's
    reading = Reading(lambda x, residual: x + residual, {"x": x, "residual": residual})
    out = part.add(x, residual)
    expect_near(out, exact, x.dtype, "the sum", reading=reading)

A part that reads `residual` with x's stride gets other numbers, or NaN out of a gap. `expect_near` then
computes what each such mistake would give, and names the one that gives what the part gave.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from grader.kit.expect import Mismatch

LARGEST_GAP = 2**30
"""What integers hold in a gap, if their dtype goes so far: no index of any tensor here."""
GUARD = 16
"""Elements before the first and behind the last, times `multiple`: 16 bytes at least."""
LEAST_EXPLAINED = 0.5
"""Share of the wrong values that an explanation must account for."""
STRIDE_WHY = (
    "Every tensor has strides of its own, one for each dimension, and none follows from its shape: "
    "multiply an index by the stride of that dimension of that tensor."
)


def padded(
    tensor: Tensor, number: int = 0, *, dims: Sequence[int] | None = None, multiple: int = 1
) -> Tensor:
    """The same values as a view with a gap behind each step of `dims`, and around it.

    dims: all but the last, if not given. number: other numbers give other gaps. multiple: strides of
    `dims` are multiples of this many elements, for kernels that load several at once. In the gaps is
    NaN; 2**30 for integers, or the largest number of the dtype.
    """
    strides = _strides(tensor.shape, number, dims, multiple)
    span = _span(tensor.shape, strides)
    guard = GUARD * multiple
    storage = torch.full((span + 2 * guard,), _filling(tensor.dtype), dtype=tensor.dtype)
    view = storage.to(tensor.device).as_strided(tuple(tensor.shape), strides, guard)
    return view.copy_(tensor)


def padded_apart(
    *tensors: Tensor, dims: Sequence[int] | None = None, multiple: int = 1
) -> tuple[Tensor, ...]:
    """`padded` for each, so that no padded stride is another tensor's, nor that of a contiguous one."""
    taken = {stride for tensor in tensors for stride in contiguous_strides(tensor.shape)}
    views = []
    for tensor in tensors:
        number = 0
        while set(_own(tensor.shape, number, dims, multiple)) & taken:
            number += 1
        taken |= set(_own(tensor.shape, number, dims, multiple))
        views.append(padded(tensor, number, dims=dims, multiple=multiple))
    return tuple(views)


def expect_gaps_kept(what: str, view: Tensor, *, why: str = "") -> None:
    """Nothing was written between, before or behind the elements of a view that `padded` made."""
    storage = _flat(view)
    inside = torch.zeros(len(storage), dtype=torch.bool, device=view.device)
    inside.as_strided(tuple(view.shape), view.stride(), view.storage_offset()).fill_(True)
    filling = _filling(view.dtype)
    kept = storage.isnan() if filling != filling else storage == filling
    if not bool((damaged := ~kept & ~inside).any()):
        return
    offset = int(damaged.nonzero()[0]) - int(view.storage_offset())
    raise Mismatch(
        f"{what}: offset {offset} was written, which is no element of it: "
        f"{where_is(offset, view.shape, view.stride())}",
        why=why or STRIDE_WHY,
    )


def where_is(offset: int, shape: Sequence[int], strides: Sequence[int]) -> str:
    """In words, where an offset that is no element lies: its strides and the element before it."""
    told = f"strides {list(strides)}, shape {list(shape)}"
    if offset < 0:
        return f"it lies before the first element ({told})"
    index = index_before(offset, shape, strides)
    beyond = offset - sum(i * stride for i, stride in zip(index, strides, strict=True))
    return f"it lies {beyond} behind element {index} ({told})"


def index_before(offset: int, shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The last element of a view at or before an offset of 0 or more."""
    index = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: -strides[axis]):
        if strides[axis] > 0:
            index[axis] = min(offset // strides[axis], shape[axis] - 1)
            offset -= index[axis] * strides[axis]
    return index


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


_Misread = dict[str, tuple[tuple[int, ...], int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a right answer follows from its inputs: what a part that misreads one of them would give.

    compute: called with the inputs by name, returns float64. inputs: the tensors as the part gets them.
    Make it before the part is called: what memory holds now is what may have been read.
    """

    compute: Callable[..., Tensor]
    inputs: Mapping[str, Tensor]
    _memory: dict[str, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, tensor in self.inputs.items():
            self._memory[name] = _flat(tensor).clone()

    def misread(self, name: str, strides: Sequence[int], shift: int = 0) -> tuple[Tensor, bool]:
        """(what comes out if an input is read with these strides, does it leave its memory)."""
        return self.read_with({name: (tuple(strides), shift)})

    def read_with(self, wrong: Mapping[str, tuple[tuple[int, ...], int]]) -> tuple[Tensor, bool]:
        """The same for several inputs: their strides, and how far their first element is moved."""
        tensors, outside = {}, False
        for name, tensor in self.inputs.items():
            strides, shift = wrong.get(name, (tuple(tensor.stride()), 0))
            begin = int(tensor.storage_offset()) + shift
            tensors[name], left = _read(self._memory[name], tensor.shape, strides, begin)
            outside = outside or left
        return self.compute(**tensors), outside


def explain_strides(got: Tensor, exact: Tensor, reading: Reading, *, tolerance: float) -> str:
    """Which input was read with which wrong stride, if that gives `got`; "" if nothing does."""
    wrong = ~_close(got, exact, tolerance)
    for misread, told in _misreadings(reading.inputs):
        try:
            values, outside = reading.read_with(misread)
        except Exception:  # noqa: BLE001, an index out of a gap may be anything
            continue
        alike = _close(got, values, tolerance)
        if bool(values.isnan().any()) and not bool((alike & wrong & ~values.isnan()).any()):
            continue  # NaN spreads, from whichever gap it was read: it tells no tensor from another
        unknown = values.isnan() & outside
        explained = int((wrong & alike).sum())
        if bool((alike | unknown).all()) and explained >= LEAST_EXPLAINED * int(wrong.sum()):
            name = next(iter(misread))
            return _told(name, reading.inputs[name], *misread[name], told)
    return ""


def _told(name: str, tensor: Tensor, strides: Sequence[int], shift: int, told: str) -> str:
    pairs = list(zip(strides, tensor.stride(), tensor.shape, strict=True))
    index = [int(new != old and size > 1) for new, old, size in pairs]
    at = shift + sum(i * new for i, (new, _, _) in zip(index, pairs, strict=True))
    right = sum(i * old for i, (_, old, _) in zip(index, pairs, strict=True))
    return (
        f"element {index} of {name} was read from offset {at}, expected {right}: {told} "
        f"({name}: shape {list(tensor.shape)}, strides {list(tensor.stride())})"
    )


def _misreadings(inputs: Mapping[str, Tensor]) -> Iterator[tuple[_Misread, str]]:
    """(which inputs are read how, in words) for one input, then for all at once."""
    for name in inputs:
        for strides, shift, told in _misreadings_of(name, inputs):
            yield {name: (strides, shift)}, told
    for one, other in combinations(inputs, 2):
        yield from _shared_misreadings(one, other, inputs)
    dense = {
        name: (contiguous_strides(tensor.shape), 0)
        for name, tensor in inputs.items()
        if contiguous_strides(tensor.shape) != tensor.stride()
    }
    if len(dense) > 1:
        told = " and ".join(dense)
        yield dense, f"{told} are all read as if they were contiguous"


def _shared_misreadings(
    one: str, other: str, inputs: Mapping[str, Tensor]
) -> Iterator[tuple[_Misread, str]]:
    """Two inputs of one shape, both read with a stride that one of them has in another dimension."""
    shape, own = inputs[one].shape, (inputs[one].stride(), inputs[other].stride())
    if shape != inputs[other].shape:
        return
    for axis, size in enumerate(shape):
        for dim, stride in enumerate(own[0]):
            if size < 2 or stride in (own[0][axis], own[1][axis]):
                continue
            first, second = ((*its[:axis], stride, *its[axis + 1 :]) for its in own)
            told = f"{stride} is its own stride of dimension {dim}; {other} is read so, too"
            yield {one: (first, 0), other: (second, 0)}, told


def _misreadings_of(
    name: str, inputs: Mapping[str, Tensor]
) -> Iterator[tuple[tuple[int, ...], int, str]]:
    """(strides, shift of the first element, in words) of each way to misread one input."""
    tensor = inputs[name]
    own = tensor.stride()
    dense = contiguous_strides(tensor.shape)
    for axis, size in enumerate(tensor.shape):
        if size < 2:
            continue
        names = {dense[axis]: f"{dense[axis]} is the stride if {name} were contiguous"}
        for other, values in inputs.items():
            for dim, stride in enumerate(values.stride()):
                whose = "its own" if other == name else f"{other}'s"
                names.setdefault(stride, f"{stride} is {whose} stride of dimension {dim}")
        for stride, told in names.items():
            if stride != own[axis]:
                yield (*own[:axis], stride, *own[axis + 1 :]), 0, told
    if dense != own:
        yield dense, 0, f"{list(dense)} are the strides if {name} were contiguous"
    for other, values in inputs.items():
        if values.ndim == tensor.ndim and values.stride() != own:
            yield values.stride(), 0, f"{list(values.stride())} are {other}'s strides"
    for axis, size in enumerate(tensor.shape):
        for step in (1, -1) if size > 1 else ():
            whence = "after" if step > 0 else "before"
            yield own, step * own[axis], f"that is one step of dimension {axis} {whence} it"


def _read(
    memory: Tensor, shape: Sequence[int], strides: Sequence[int], begin: int
) -> tuple[Tensor, bool]:
    """A tensor out of flat memory, NaN (0 for integers) where there is none; and whether that was so."""
    place = torch.full((), begin, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = torch.arange(size) * stride
        place = place + steps.reshape(-1, *[1] * (len(shape) - axis - 1))
    is_there = (place >= 0) & (place < len(memory))
    values = memory[place.clamp(0, max(len(memory) - 1, 0))]
    nothing = math.nan if memory.is_floating_point() else 0
    return values.masked_fill(~is_there, nothing), not bool(is_there.all())


def _close(got: Tensor, exact: Tensor, tolerance: float) -> Tensor:
    return torch.isclose(
        got.double(), exact.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def _flat(tensor: Tensor) -> Tensor:
    """All of the memory that a view looks into."""
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


def _filling(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else min(LARGEST_GAP, torch.iinfo(dtype).max)


def _own(
    shape: Sequence[int], number: int, dims: Sequence[int] | None, multiple: int
) -> tuple[int, ...]:
    """The strides of the dimensions that have gaps."""
    strides = _strides(shape, number, dims, multiple)
    return tuple(strides[axis] for axis in _axes(shape, dims))


def _axes(shape: Sequence[int], dims: Sequence[int] | None) -> set[int]:
    return {axis % len(shape) for axis in (range(len(shape) - 1) if dims is None else dims)}


def _strides(
    shape: Sequence[int], number: int, dims: Sequence[int] | None, multiple: int
) -> tuple[int, ...]:
    axes = _axes(shape, dims)
    strides: list[int] = []
    inner = 1
    for depth, axis in enumerate(reversed(range(len(shape)))):
        step = inner
        if axis in axes:
            step = -(-(inner + 2 * number + depth + 1) // multiple) * multiple
        strides.append(step)
        inner = step * max(shape[axis], 1)
    return tuple(reversed(strides))


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
