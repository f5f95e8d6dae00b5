"""All-reduce and all-gather round a ring: each rank sends to the next and receives from the one before.

A reduce-scatter leaves each rank with one chunk of the sum, and a gather of these chunks completes it.
In each of the two a rank sends all chunks but one, so an all-reduce sends less than twice the tensor,
however many ranks there are (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations").
"""

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link

from .shares import share


class Ring:
    """See `yaie.core.contracts.ranks.Ring`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.rank = link.rank
        self.size = link.size

    # ANCHOR: reduce_scatter
    def reduce_scatter(self, x: Tensor) -> None:
        """x: [n], contiguous. Chunk `rank` becomes its sum over all ranks."""
        # BEGIN SOLUTION 20.2
        chunks = self._chunks(x)
        for step in range(1, self.size):
            coming = chunks[(self.rank - step - 1) % self.size]
            arrived = torch.empty_like(coming)
            self._exchange(chunks[(self.rank - step) % self.size], arrived)
            coming += arrived
        # END SOLUTION

    def _chunks(self, x: Tensor) -> list[Tensor]:
        """Views of x [n], one for each rank."""
        # BEGIN SOLUTION 20.2
        parts = (share(len(x), rank, self.size) for rank in range(self.size))
        return [x[part.start : part.stop] for part in parts]
        # END SOLUTION

    def _exchange(self, leaving: Tensor, coming: Tensor) -> None:
        """Send one tensor to the next rank and fill the other from the rank before."""
        # BEGIN SOLUTION 20.2
        sent = self._link.send(leaving, (self.rank + 1) % self.size)
        received = self._link.receive(coming, (self.rank - 1) % self.size)
        received.wait()
        sent.wait()
        # END SOLUTION

    # ANCHOR_END: reduce_scatter

    # ANCHOR: gather_chunks
    def gather_chunks(self, x: Tensor) -> None:
        """x: [n], contiguous. Chunk r becomes, on every rank, what rank r has in it."""
        # BEGIN SOLUTION 20.3
        chunks = self._chunks(x)
        for step in range(self.size - 1):
            leaving = chunks[(self.rank - step) % self.size]
            self._exchange(leaving, chunks[(self.rank - step - 1) % self.size])
        # END SOLUTION

    # ANCHOR_END: gather_chunks

    # ANCHOR: collectives
    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks of x, of any shape: the same bits on each of them."""
        # BEGIN SOLUTION 20.3
        flat = x.contiguous().view(-1)
        self.reduce_scatter(flat)
        self.gather_chunks(flat)
        return flat.view(x.shape)
        # END SOLUTION

    def all_gather(self, x: Tensor) -> Tensor:
        """[size, *x.shape]: x of every rank, in the order of the ranks."""
        # BEGIN SOLUTION 20.3
        gathered = x.new_empty(self.size, *x.shape)
        gathered[self.rank] = x
        self.gather_chunks(gathered.view(-1))
        return gathered
        # END SOLUTION

    # ANCHOR_END: collectives
