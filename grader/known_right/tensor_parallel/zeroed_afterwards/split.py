"""Every token is looked up, modulo the table, and the rows of other ranks are emptied by an index."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from yaie.core.contracts.ranks import Collectives


class RowParallel:
    def __init__(
        self, product: Callable[[Tensor], Tensor], bias: Tensor | None, group: Collectives
    ) -> None:
        self.product, self.bias, self.group = product, bias, group

    def __call__(self, x: Tensor) -> Tensor:
        y = self.group.all_reduce(self.product(x))
        if self.bias is None:
            return y
        return torch.add(y, self.bias.expand_as(y))


class VocabEmbedding:
    def __init__(self, table: Tensor, first: int, group: Collectives) -> None:
        self.table, self.group = table, group
        self.tokens = range(first, first + len(table))

    def __call__(self, token_ids: Tensor) -> Tensor:
        local = token_ids - self.tokens.start
        rows = functional.embedding(local % len(self.tokens), self.table)
        inside = torch.logical_and(local.ge(0), local.lt(len(self.tokens)))
        rows.index_fill_(0, inside.logical_not().nonzero().flatten(), 0)
        return self.group.all_reduce(rows)
