"""`Shard`: what one of several ranks holds of a model. Its layers speak to the other ranks by lab 20."""

from types import ModuleType

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives
from yaie.core.gemm import FusedGemm, PlainWeight
from yaie.models.layout import Cut, Width
from yaie.models.whole import Passing, Product, Whole


class Shard(Whole):
    """The part of one rank. See `Whole`."""

    def __init__(
        self, part: ModuleType, group: Collectives, passing: Passing | None = None
    ) -> None:
        """part: lab 20's. group: the ranks that split this stage's layers."""
        self.size = group.size
        self._part, self._group, self._stage = part, group, 0
        if passing is not None:
            self.passing, self.stages, self._stage = passing, passing.stages, passing.stage
            self.is_first, self.is_last = passing.is_first, passing.is_last

    def layers(self, total: int) -> range:
        return self._share(total, self._stage, self.stages)

    def heads(self, num_heads: int, num_kv_heads: int) -> tuple[range, range]:
        heads: tuple[range, range] = self._part.share_heads(
            num_heads, num_kv_heads, self._group.rank, self.size
        )
        return heads

    def width(self, total: int) -> Width:
        return self._cut(total)

    def vocab(self, total: int) -> Width:
        return self._cut(total)

    def features(self, heads: range, head_dim: int, total: int) -> Width:
        run = range(heads.start * head_dim, heads.stop * head_dim)
        return total * head_dim if self.size == 1 else Cut(total * head_dim, (run,))

    def qkv(self, num_heads: int, num_kv_heads: int, head_dim: int) -> Width:
        if self.size == 1:
            return super().qkv(num_heads, num_kv_heads, head_dim)
        own = num_heads, num_kv_heads, head_dim
        runs = self._part.qkv_rows(*own, self._group.rank, self.size)
        return Cut((num_heads + 2 * num_kv_heads) * head_dim, runs)

    def all_reduce(self, product: Product, bias: Tensor | None) -> Product:
        made: Product = self._part.RowParallel(product, bias, self._group)
        return made

    def onto(self, fused: FusedGemm, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        """One rank adds the residual before the sum, within its product."""
        if self.size == 1:
            return super().onto(fused, x, product, residual)
        part = PlainWeight(product.weight, None)

        def multiply(x: Tensor) -> Tensor:
            if self._group.rank == 0:
                return fused.onto(x, part, residual)
            return fused.product(x, part)

        return self.all_reduce(multiply, product.bias)(x)

    def lookup(self, table: Tensor, vocab: Width) -> Product:
        if isinstance(vocab, int):
            return super().lookup(table, vocab)
        made: Product = self._part.VocabEmbedding(table, vocab.held[0].start, self._group)
        return made

    def all_agree(self, yes: bool, device: torch.device) -> bool:
        return bool(self.all_gather(torch.tensor([int(yes)], device=device)).all())

    def all_gather(self, x: Tensor) -> Tensor:
        return super().all_gather(x) if self.size == 1 else self._group.all_gather(x)

    def all_gather_logits(self, vocab_size: int) -> Product:
        made: Product = self._part.VocabLogits(vocab_size, self._group).gather
        return made

    def best(self, vocab_size: int) -> Product:
        if self.size == 1:
            return super().best(vocab_size)
        made: Product = self._part.VocabLogits(vocab_size, self._group).arg_max
        return made

    def _cut(self, total: int) -> Width:
        if self.size == 1:
            return total
        return Cut(total, (self._share(total, self._group.rank, self.size),))

    def _share(self, total: int, rank: int, size: int) -> range:
        run: range = self._part.share(total, rank, size)
        return run
