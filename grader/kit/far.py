"""Tensors whose rows lie 2**30 elements apart, on few pages of memory: the offset of row 2 is no int32.

    with far() as apart:
        x = apart(random(3, 5, dtype=torch.float16))      # x.stride(0) > 2**30
        got = kernels.rms_norm(x, weight, 1e-5)

Address space is reserved once for the process, and only the pages that are touched take memory. What
lies between the rows reads as 0. Where a system refuses such a reservation, tensors are ordinary ones,
and an offset that is too narrow goes unseen.
"""

import functools
import mmap
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from grader.kit.expect import Fault

STEP = 2**30
"""Elements from row to row, and a little more. Below 2**31, or a kernel would get it as an int64."""
RESERVED = 48 * 2**30
"""Bytes of address space: twelve tensors of three rows of float16."""
NO_RESERVE = {"linux": 0x4000, "darwin": 0x40}
"""MAP_NORESERVE, which the module mmap of older Pythons has no name for."""
FAR_WHY = (
    "Rows and blocks are about 2**30 elements apart here, so the offset of number 2 is 2**31 and no "
    "int32, in which it becomes negative. Program numbers, tl.arange and what is loaded from an int32 "
    "tensor are int32: widen them with .to(tl.int64) before they meet a stride."
)


@contextmanager
def far(why: str = FAR_WHY) -> Iterator[Callable[[Tensor], Tensor]]:
    """Gives a function: a copy of a tensor [rows, ...] whose rows are far apart, otherwise packed.

    Every copy has a stride of its own. They are valid until the next `far()`. A Fault inside is told
    with this `why`. Dtypes of two bytes take the least address space.
    """
    room = _Room()
    try:
        yield room.apart
    except Fault as error:
        error.why = _of_product(error.problem) or why
        raise


def _of_product(problem: str) -> str:
    """What to do where it is known which product was too large, see `triton_frames.product_here`."""
    named = re.match(r"(\w+) = \d+ is int32 in \w+, and .* is no int32", problem)
    if named is None:
        return ""
    return f"Widen {named[1]} with .to(tl.int64) before it is multiplied."


class _Room:
    """Hands out the reserved bytes from the front."""

    def __init__(self) -> None:
        self._used = 0
        self._count = 0

    def apart(self, tensor: Tensor) -> Tensor:
        self._count += 1
        gap, row, memory = 64 * self._count, tensor[0].numel(), _reserved()
        step = row + gap if memory is None else STEP + gap
        size = ((len(tensor) - 1) * step + row) * tensor.element_size()
        if memory is None:
            flat = torch.zeros(size, dtype=torch.uint8).view(tensor.dtype)
        else:
            begin, self._used = self._used, self._used + -(-size // 64) * 64
            assert self._used <= RESERVED, "too many far tensors at once"
            flat = memory[begin : begin + size].view(tensor.dtype)
        strides = step, *tensor[0].contiguous().stride()
        return flat.as_strided(tensor.shape, strides, flat.storage_offset()).copy_(tensor)


@functools.lru_cache(maxsize=1)
def _reserved() -> Tensor | None:
    """RESERVED bytes of address space without memory behind them, or None where that is refused."""
    if sys.platform not in NO_RESERVE:
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE[sys.platform]
    try:
        _raise_limit(RESERVED)
        memory = mmap.mmap(-1, RESERVED, flags=flags)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)  # or each row that is touched takes 2 MiB
    except (OSError, ValueError):
        return None
    return torch.frombuffer(memory, dtype=torch.uint8)


def _raise_limit(size: int) -> None:
    """The worker's limit is for what a part allocates: it goes up by what we reserve."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    raised = soft + size if hard == resource.RLIM_INFINITY else min(soft + size, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (raised, hard))
