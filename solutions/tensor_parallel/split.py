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
        # BEGIN SOLUTION 20.4
        y = self._group.all_reduce(self._product(x))
        return y if self._bias is None else y + self._bias
        # END SOLUTION


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
        # BEGIN SOLUTION 20.5
        rows = token_ids - self._first
        elsewhere = (rows < 0) | (rows >= len(self._table))
        mine = self._table[rows.masked_fill(elsewhere, 0)]
        return self._group.all_reduce(mine.masked_fill(elsewhere[:, None], 0))
        # END SOLUTION


# ANCHOR_END: vocab_embedding
