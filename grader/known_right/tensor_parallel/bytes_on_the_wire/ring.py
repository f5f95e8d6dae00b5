"""What is sent is bytes: a link is given views of uint8, whatever the numbers are."""

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link

from .shares import share


def as_bytes(x: Tensor) -> Tensor:
    return x.view(-1).view(torch.uint8)


class Ring:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank = link.rank
        self.size = link.size
        self._next, self._before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def _chunk(self, x: Tensor, number: int) -> Tensor:
        held = share(x.numel(), number % self.size, self.size)
        return x[held.start : held.stop]

    def _step(self, leaving: Tensor, coming: Tensor) -> None:
        sent = self._link.send(as_bytes(leaving), self._next)
        self._link.receive(as_bytes(coming), self._before).wait()
        sent.wait()

    def reduce_scatter(self, x: Tensor) -> None:
        for step in range(1, self.size):
            target = self._chunk(x, self.rank - step - 1)
            arrived = torch.empty_like(target)
            self._step(self._chunk(x, self.rank - step), arrived)
            target.add_(arrived)

    def gather_chunks(self, x: Tensor) -> None:
        for step in range(self.size - 1):
            self._step(self._chunk(x, self.rank - step), self._chunk(x, self.rank - step - 1))

    def all_reduce(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1).contiguous()
        self.reduce_scatter(flat)
        self.gather_chunks(flat)
        return flat.reshape(x.shape)

    def all_gather(self, x: Tensor) -> Tensor:
        """The chunks of a vector of all bytes are the ranks' tensors."""
        own = as_bytes(x.contiguous())
        whole = own.new_empty(self.size, len(own))
        whole[self.rank] = own
        self.gather_chunks(whole.view(-1))
        return whole.view(-1).view(x.dtype).view(self.size, *x.shape)
