"""A token elsewhere is looked up at the nearest row, and `torch.where` puts zeros in its place."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives


def _added(bias: Tensor, y: Tensor) -> Tensor:
    return y + bias


class RowParallel:
    """What is left to do after the sum is decided once, when it is made."""

    def __init__(
        self, product: Callable[[Tensor], Tensor], bias: Tensor | None, group: Collectives
    ) -> None:
        self.__parts = (product, group.all_reduce)
        self.__bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.__parts:
            x = part(x)
        return x if self.__bias is None else _added(self.__bias, x)


class VocabEmbedding:
    def __init__(self, table: Tensor, first: int, group: Collectives) -> None:
        self._table, self._first, self._group = table, first, group

    def __call__(self, token_ids: Tensor) -> Tensor:
        own = token_ids - self._first
        inside = own.clamp(min=0, max=self._table.shape[0] - 1)
        rows = self._table.index_select(0, inside)
        zeros = torch.zeros((), dtype=rows.dtype, device=rows.device)
        return self._group.all_reduce(torch.where((own == inside).unsqueeze(1), rows, zeros))
