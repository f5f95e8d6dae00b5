"""The collectives in the obvious way: each rank sends all that it has to all others.

So an all-reduce sends size - 1 times the bytes of the tensor; the ring sends less than twice as many.
"""

from torch import Tensor

from yaie.core.contracts.ranks import Link


# ANCHOR: each_to_all
class EachToAll:
    """See `yaie.core.contracts.ranks.Collectives`, but for the bytes that an all-reduce sends."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank = link.rank
        self.size = link.size

    def all_gather(self, x: Tensor) -> Tensor:
        """All transfers are begun before one is waited for."""
        gathered = x.new_empty(self.size, *x.shape)
        gathered[self.rank] = x
        others = [rank for rank in range(self.size) if rank != self.rank]
        transfers = [self._link.send(gathered[self.rank], rank) for rank in others]
        transfers += [self._link.receive(gathered[rank], rank) for rank in others]
        for transfer in transfers:
            transfer.wait()
        return gathered

    def all_reduce(self, x: Tensor) -> Tensor:
        """A sum over a dimension adds in the same order on every rank."""
        return self.all_gather(x).sum(dim=0)


# ANCHOR_END: each_to_all
