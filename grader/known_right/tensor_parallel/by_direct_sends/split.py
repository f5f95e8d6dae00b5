"""The bias on the first rank alone, before the sum; the embedding as a product with ones and zeros."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives


class RowParallel:
    def __init__(
        self, product: Callable[[Tensor], Tensor], bias: Tensor | None, group: Collectives
    ) -> None:
        self._product = product
        self._bias = bias if group.rank == 0 else None
        self._group = group

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x).clone()
        if self._bias is not None:
            y += self._bias
        return self._group.all_reduce(y)


class VocabEmbedding:
    def __init__(self, table: Tensor, first: int, group: Collectives) -> None:
        self._table = table
        self._first = first
        self._group = group

    def __call__(self, token_ids: Tensor) -> Tensor:
        found = torch.zeros(
            len(token_ids), self._table.shape[1], dtype=self._table.dtype, device=self._table.device
        )
        behind = self._first + len(self._table)
        mine = ((token_ids >= self._first) & (token_ids < behind)).nonzero()[:, 0]
        found[mine] = self._table[token_ids[mine] - self._first]
        return self._group.all_reduce(found)
