"""A ring whose received chunks go by a buffer of its own, which grows with the largest tensor."""

from functools import lru_cache

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link

from .shares import share


@lru_cache(maxsize=64)
def _ends(total: int, size: int) -> tuple[int, ...]:
    parts = (share(total, rank, size) for rank in range(size))
    return (0, *(part.stop for part in parts))


class Ring:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank, self.size = link.rank, link.size
        self._arriving = torch.empty(0, dtype=torch.uint8)

    def _chunk(self, x: Tensor, number: int) -> Tensor:
        ends = _ends(len(x), self.size)
        at = number % self.size
        return x[ends[at] : ends[at + 1]]

    def _into(self, like: Tensor) -> Tensor:
        if self._arriving.numel() < like.nbytes or self._arriving.device != like.device:
            self._arriving = torch.empty(like.nbytes, dtype=torch.uint8, device=like.device)
        return self._arriving[: like.nbytes].view(like.dtype).view(like.shape)

    def _pass_on(self, leaving: Tensor, coming: Tensor) -> None:
        received = self._link.receive(coming, (self.rank - 1) % self.size)
        sent = self._link.send(leaving, (self.rank + 1) % self.size)
        for transfer in (sent, received):
            transfer.wait()

    def reduce_scatter(self, x: Tensor) -> None:
        for number in range(self.rank - 1, self.rank - self.size, -1):
            target = self._chunk(x, number - 1)
            arrived = self._into(target)
            self._pass_on(self._chunk(x, number), arrived)
            target += arrived

    def gather_chunks(self, x: Tensor) -> None:
        for number in range(self.rank, self.rank - self.size + 1, -1):
            self._pass_on(self._chunk(x, number), self._chunk(x, number - 1))

    def all_reduce(self, x: Tensor) -> Tensor:
        whole = x.clone(memory_format=torch.contiguous_format)
        flat = whole.flatten()
        self.reduce_scatter(flat)
        self.gather_chunks(flat)
        return flat.view(x.shape)

    def all_gather(self, x: Tensor) -> Tensor:
        whole = torch.empty((self.size, x.numel()), dtype=x.dtype, device=x.device)
        whole[self.rank].copy_(x.flatten())
        self.gather_chunks(whole.view(-1))
        return whole.view(self.size, *x.shape)
