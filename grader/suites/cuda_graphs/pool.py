"""Memory of captures, as PyTorch's caching allocator hands it out: in segments that never grow.

What a capture drops is used again, by itself or by the next capture of the same pool. A request takes
the smallest free piece that holds it; if none does, a segment of its own size is reserved. A pool that
has recorded the largest step first has room for the others; one that has recorded the smallest first has
segments that are too small.
"""

import weakref
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

ALIGNED = 16


@dataclass(eq=False)
class Segment:
    """One piece of reserved memory. free: (begin, end) of what is not in use, in bytes, ascending."""

    memory: np.ndarray
    bytes: Tensor
    free: list[tuple[int, int]] = field(default_factory=list)


class Pool:
    """reserved: bytes of all segments together."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    @property
    def reserved(self) -> int:
        return sum(len(segment.memory) for segment in self._segments)

    @property
    def in_use(self) -> int:
        """Bytes that some tensor still keeps."""
        free = sum(end - begin for segment in self._segments for begin, end in segment.free)
        return self.reserved - free

    def like(self, tensor: Tensor) -> Tensor:
        """Memory for a tensor of this shape and dtype, contiguous; it is given back with the last tensor
        that uses it."""
        count = max(1, tensor.numel()) * tensor.itemsize
        size = -(-count // ALIGNED) * ALIGNED
        segment, begin = self._take(size)
        piece = segment.memory[begin : begin + count]
        weakref.finalize(piece, self._give_back, segment, begin, begin + size)
        flat = torch.from_numpy(piece).view(tensor.dtype)
        return flat[: tensor.numel()].view(tensor.shape)

    def held(self, tensor: Tensor) -> Segment | None:
        """The segment in which a tensor lies."""
        at = tensor.untyped_storage().data_ptr()
        for segment in self._segments:
            begin = segment.bytes.data_ptr()
            if begin <= at < begin + len(segment.memory):
                return segment
        return None

    def bare(self, tensor: Tensor, segment: Segment) -> Tensor:
        """The same memory as a tensor that does not keep it from being given back."""
        offset = tensor.data_ptr() - segment.bytes.data_ptr()
        flat = segment.bytes[offset:]
        flat = flat[: flat.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
        return flat.as_strided(tensor.size(), tensor.stride(), flat.storage_offset())

    def _take(self, size: int) -> tuple[Segment, int]:
        fits = [
            (end - begin, number, begin)
            for number, segment in enumerate(self._segments)
            for begin, end in segment.free
            if end - begin >= size
        ]
        if not fits:
            memory = np.zeros(size, dtype=np.uint8)
            self._segments.append(Segment(memory, torch.from_numpy(memory)))
            return self._segments[-1], 0
        length, number, begin = min(fits)
        segment = self._segments[number]
        segment.free.remove((begin, begin + length))
        if length > size:
            segment.free.append((begin + size, begin + length))
        return segment, begin

    def _give_back(self, segment: Segment, begin: int, end: int) -> None:
        pieces = sorted([*segment.free, (begin, end)])
        merged = pieces[:1]
        for first, last in pieces[1:]:
            if first == merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        segment.free[:] = merged
