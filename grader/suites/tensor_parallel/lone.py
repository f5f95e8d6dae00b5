"""A rank without the others: its link and its group answer at once, and tell nothing."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Done:
    """A transfer that is over. nbytes: of what was sent. waits: how often it was waited for."""

    nbytes: int = 0
    waits: int = 0

    def wait(self) -> None:
        self.waits += 1


@dataclass(slots=True)
class LoneLink:
    """A `Link` into the void: what is sent is gone, and what is received is zeros. sent: since it was
    cleared."""

    rank: int
    size: int
    sent: list[Done] = field(default_factory=list)

    def send(self, tensor: Tensor, to: int) -> Done:
        self.sent.append(Done(tensor.nbytes))
        return self.sent[-1]

    def receive(self, into: Tensor, source: int) -> Done:
        into.zero_()
        return Done()


@dataclass(frozen=True, slots=True)
class LoneGroup:
    """`Collectives` of ranks that all have what rank 0 has."""

    rank: int = 0
    size: int = 2

    def all_reduce(self, x: Tensor) -> Tensor:
        return x * self.size

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.stack([x] * self.size)
