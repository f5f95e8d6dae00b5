"""Every transfer is kept, and before a chunk is read all of them are waited for, also those that are
over."""

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer

from .shares import share


class Ring:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank = link.rank
        self.size = link.size

    def _turn(self, x: Tensor, first: int, adds: bool) -> None:
        """size - 1 steps round the ring, with chunk `first` to leave first."""
        chunks = list(x.split([len(share(len(x), rank, self.size)) for rank in range(self.size)]))
        begun: list[Transfer] = []
        for step in range(self.size - 1):
            leaving, coming = (chunks[(first - turn) % self.size] for turn in (step, step + 1))
            into = torch.empty_like(coming) if adds else coming
            begun.append(self._link.receive(into, (self.rank - 1) % self.size))
            begun.append(self._link.send(leaving, (self.rank + 1) % self.size))
            for transfer in begun:
                transfer.wait()
            if adds:
                coming.add_(into)

    def reduce_scatter(self, x: Tensor) -> None:
        self._turn(x, self.rank - 1, adds=True)

    def gather_chunks(self, x: Tensor) -> None:
        self._turn(x, self.rank, adds=False)

    def all_reduce(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1).clone()
        self.reduce_scatter(flat)
        self.gather_chunks(flat)
        return flat.reshape(x.shape)

    def all_gather(self, x: Tensor) -> Tensor:
        flat = torch.cat([x.reshape(-1)] * self.size)
        self.gather_chunks(flat)
        return flat.view(self.size, *x.shape)
