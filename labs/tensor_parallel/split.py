# Lab 20, your part (edition 2): tasks 20.4, 20.5. The rest is given.
"""Products and tables of which each rank holds a part: what they give is the sum over the ranks.

A product that is split by its output (column parallel) needs nothing new: each rank holds the rows of
the weight that `shares` gives it. Split by its input (row parallel), each rank has a part of every sum.
"""

from collections.abc import Callable

from torch import Tensor

from yaie.core.contracts.ranks import Collectives


# ANCHOR: row_parallel
class RowParallel:
    """See `yaie.core.contracts.ranks.RowParallel`."""

    def __init__(
        self, product: Callable[[Tensor], Tensor], bias: Tensor | None, group: Collectives
    ) -> None:
        self._product = product
        self._bias = bias
        self._group = group

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, in / size]. Returns [rows, out]."""
        # TODO 20.4: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.4: not implemented yet; see chapter Tensor parallelism"
        )


# ANCHOR_END: row_parallel


# ANCHOR: vocab_embedding
class VocabEmbedding:
    """See `yaie.core.contracts.ranks.VocabEmbedding`."""

    def __init__(self, table: Tensor, first: int, group: Collectives) -> None:
        self._table = table
        self._first = first
        self._group = group

    def __call__(self, token_ids: Tensor) -> Tensor:
        """token_ids: [T] int64, of the whole vocabulary. Returns [T, hidden]."""
        # TODO 20.5: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.5: not implemented yet; see chapter Tensor parallelism"
        )


# ANCHOR_END: vocab_embedding
