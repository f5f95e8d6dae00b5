"""Recursive halving and doubling among a power of two of ranks: log2(size) steps, as many bytes as the
ring's. Any other number of ranks takes turns with one partner after the other."""

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link

from .shares import share


class Ring:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank, self.size = link.rank, link.size
        self._is_power = self.size & (self.size - 1) == 0

    def _ranks(self, x: Tensor, begin: int, end: int) -> Tensor:
        """The chunks of the ranks begin..end of x, which lie side by side."""
        first, last = share(len(x), begin, self.size), share(len(x), end - 1, self.size)
        return x[first.start : last.stop]

    def _swap(self, leaving: Tensor, coming: Tensor, to: int, source: int) -> None:
        arriving = self._link.receive(coming, source)
        self._link.send(leaving, to).wait()
        arriving.wait()

    def reduce_scatter(self, x: Tensor) -> None:
        if not self._is_power:
            own = self._ranks(x, self.rank, self.rank + 1)
            for turn in range(1, self.size):
                to, source = (self.rank + turn) % self.size, (self.rank - turn) % self.size
                arrived = torch.empty_like(own)
                self._swap(self._ranks(x, to, to + 1), arrived, to, source)
                own += arrived
            return
        begin, end = 0, self.size
        while end - begin > 1:
            middle = (begin + end) // 2
            partner = self.rank ^ (end - begin) // 2
            low, high = (begin, middle), (middle, end)
            mine, theirs = (low, high) if self.rank < middle else (high, low)
            kept = self._ranks(x, *mine)
            arrived = torch.empty_like(kept)
            self._swap(self._ranks(x, *theirs), arrived, partner, partner)
            kept += arrived
            begin, end = mine

    def gather_chunks(self, x: Tensor) -> None:
        if not self._is_power:
            own = self._ranks(x, self.rank, self.rank + 1)
            for turn in range(1, self.size):
                to, source = (self.rank + turn) % self.size, (self.rank - turn) % self.size
                self._swap(own, self._ranks(x, source, source + 1), to, source)
            return
        width = 1
        while width < self.size:
            begin = self.rank // width * width
            partner = begin ^ width
            mine, theirs = (self._ranks(x, at, at + width) for at in (begin, partner))
            self._swap(mine, theirs, self.rank ^ width, self.rank ^ width)
            width *= 2

    def all_reduce(self, x: Tensor) -> Tensor:
        vector = x.detach().clone().reshape(-1)
        self.reduce_scatter(vector)
        self.gather_chunks(vector)
        return x.copy_(vector.reshape(x.shape))

    def all_gather(self, x: Tensor) -> Tensor:
        whole = torch.zeros(self.size, *x.shape, dtype=x.dtype, device=x.device)
        whole.select(0, self.rank).copy_(x)
        self.gather_chunks(whole.flatten())
        return whole
