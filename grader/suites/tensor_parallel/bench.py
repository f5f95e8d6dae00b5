"""What the tests of lab 20 share: numbers that tell which rank they come from, and what is lent."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from grader.kit.rank_links import SimLink
from solutions import tensor_parallel as reference

SIZES = (2, 3, 4, 5)


def marked(n: int, rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A vector that tells rank and place: at place i is (i + 1) * 10^rank."""
    return torch.arange(1, n + 1, dtype=dtype) * 10**rank


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, of which no two are alike."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def most_bytes(n: int, size: int, itemsize: int = 4) -> int:
    """(size - 1) / size of the bytes of n numbers, if all chunks were as large as the largest."""
    return (size - 1) * -(-n // size) * itemsize


def chunk(n: int, rank: int, size: int) -> slice:
    """Where the chunk of a rank is."""
    held = reference.share(n, rank, size)
    return slice(held.start, held.stop)


def cut(x: Tensor, rank: int, size: int, dim: int = -1) -> Tensor:
    """A rank's part of a dimension."""
    held = reference.share(x.shape[dim], rank, size)
    return x.narrow(dim, held.start, len(held))


def lent_ring(part: Any, link: SimLink) -> Any:
    """The part's ring, with the reference's reduce-scatter: that is graded in its own task."""

    class Lent(part.Ring):
        def reduce_scatter(self, x: Tensor) -> None:
            reference.Ring(link).reduce_scatter(x)

    Lent.__name__ = "Ring"
    return Lent(link)


def lend_shares() -> list[tuple[Any, Any]]:
    """Put the reference's `share` where modules of the part have imported it from `shares.py`. Returns
    (module, what it had)."""
    home = "labs.tensor_parallel"
    modules: list[Any] = [
        module for name, module in sys.modules.items() if name.startswith(f"{home}.")
    ]
    lent = [
        (module, module.share)
        for module in modules
        if hasattr(module, "share") and module.__name__ != f"{home}.shares"
    ]
    for module, _ in lent:
        module.share = reference.share
    return lent


@contextmanager
def shares_lent() -> Iterator[None]:
    """While the block runs: see `lend_shares`."""
    lent = lend_shares()
    try:
        yield
    finally:
        for module, own in lent:
            module.share = own
