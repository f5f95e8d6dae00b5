"""Tensors as a kernel sees them: copies in memory of the runtime's, with space around that is nobody's.

Views of one storage (query, key and value of one product; one tensor given twice) share one copy, in
which only what the views span is valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_GAP, MOST_GAP = 64 * 1024, 16 * 2**20


@dataclass(slots=True)
class View:
    """One argument. position: among the arguments. begin, end: bytes within the storage."""

    position: int
    tensor: Tensor
    begin: int
    end: int


@dataclass(slots=True)
class Buffer:
    """The copy of a storage's bytes from `begin` to `end`. address: of byte `begin`."""

    views: list[View]
    storage: int
    begin: int
    end: int
    granule: int
    valid: Tensor | None
    address: int = 0

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def gap(self) -> int:
        return min(max(self.size, LEAST_GAP), MOST_GAP)

    def address_of(self, view: View) -> int:
        return self.address + view.begin - self.begin


def make_buffers(arguments: Sequence[object]) -> list[Buffer]:
    """One buffer for each storage among the arguments; their `address` is still to be given."""
    groups: dict[int, list[View]] = {}
    for position, argument in enumerate(arguments):
        if isinstance(argument, Tensor):
            view = _view(position, argument)
            # An empty tensor has no address to be recognised by.
            key = argument.untyped_storage().data_ptr() if view.end > view.begin else -position - 1
            groups.setdefault(key, []).append(view)
    return [_buffer(storage, views) for storage, views in groups.items()]


def _view(position: int, tensor: Tensor) -> View:
    item = tensor.element_size()
    begin = int(tensor.storage_offset()) * item
    if tensor.numel() == 0:
        return View(position, tensor, begin, begin)
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return View(position, tensor, begin, begin + (int(last) + 1) * item)


def _buffer(storage: int, views: list[View]) -> Buffer:
    begin, end = min(v.begin for v in views), max(v.end for v in views)
    granule = min(v.tensor.element_size() for v in views)
    begin -= begin % granule
    whole = any(v.begin == begin and v.end == end and _is_dense(v) for v in views)
    valid = None if whole else _spanned(views, begin, end, granule)
    return Buffer(views, storage, begin, end, granule, valid)


def _is_dense(view: View) -> bool:
    return view.end - view.begin == view.tensor.numel() * view.tensor.element_size()


def _spanned(views: list[View], begin: int, end: int, granule: int) -> Tensor | None:
    """A byte for each granule: 1 where a view has an element. None if that is everywhere."""
    valid = torch.zeros((end - begin) // granule, dtype=torch.uint8)
    for view in views:
        tensor = view.tensor
        step = tensor.element_size() // granule
        shape = (*tensor.shape, step)
        strides = (*(stride * step for stride in tensor.stride()), 1)
        valid.as_strided(shape, strides, (view.begin - begin) // granule).fill_(1)
    return None if bool(valid.all()) else valid
