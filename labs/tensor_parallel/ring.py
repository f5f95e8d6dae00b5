# Lab 20, your part (edition 2): tasks 20.2, 20.3. The rest is given.
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
        # TODO 20.2: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.2: not implemented yet; see chapter Tensor parallelism"
        )

    def _chunks(self, x: Tensor) -> list[Tensor]:
        """Views of x [n], one for each rank."""
        # TODO 20.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.2: not implemented yet; see chapter Tensor parallelism"
        )

    def _exchange(self, leaving: Tensor, coming: Tensor) -> None:
        """Send one tensor to the next rank and fill the other from the rank before."""
        # TODO 20.2: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.2: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: reduce_scatter

    # ANCHOR: gather_chunks
    def gather_chunks(self, x: Tensor) -> None:
        """x: [n], contiguous. Chunk r becomes, on every rank, what rank r has in it."""
        # TODO 20.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.3: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: gather_chunks

    # ANCHOR: collectives
    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks of x, of any shape: the same bits on each of them."""
        # TODO 20.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.3: not implemented yet; see chapter Tensor parallelism"
        )

    def all_gather(self, x: Tensor) -> Tensor:
        """[size, *x.shape]: x of every rank, in the order of the ranks."""
        # TODO 20.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.3: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: collectives
