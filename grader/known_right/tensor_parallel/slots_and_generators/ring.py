"""A ring without attributes of its own: rank and size are the link's, steps come from a generator."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link

from .shares import share


class Ring:
    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link

    @property
    def rank(self) -> int:
        return self.link.rank

    @property
    def size(self) -> int:
        return self.link.size

    def _pairs(self, x: Tensor, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(what leaves, what comes) of each step, if chunk `first` leaves first."""
        numbers = [number % self.size for number in range(first, first - self.size, -1)]
        chunks = [x[held.start : held.stop] for held in map(self._held(len(x)), numbers)]
        yield from pairwise(chunks)

    def _held(self, total: int) -> Callable[[int], range]:
        return lambda rank: share(total, rank, self.size)

    def reduce_scatter(self, x: Tensor) -> None:
        for leaving, coming in self._pairs(x, self.rank - 1):
            arrived = coming.new_empty(coming.shape)
            self._both(leaving, arrived)
            torch.add(coming, arrived, out=coming)

    def gather_chunks(self, x: Tensor) -> None:
        for pair in self._pairs(x, self.rank):
            self._both(*pair)

    def _both(self, leaving: Tensor, coming: Tensor) -> None:
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        transfers = self.link.receive(coming, before), self.link.send(leaving, after)
        for transfer in transfers:
            transfer.wait()

    def all_reduce(self, x: Tensor) -> Tensor:
        given = x if x.is_contiguous() else x.contiguous()
        self.reduce_scatter(given.view(-1))
        self.gather_chunks(given.view(-1))
        return given

    def all_gather(self, x: Tensor) -> Tensor:
        whole = x.new_empty(self.size * x.numel())
        held = share(len(whole), self.rank, self.size)
        whole[held.start : held.stop].view(x.shape).copy_(x)
        self.gather_chunks(whole)
        return whole.view(self.size, *x.shape)
