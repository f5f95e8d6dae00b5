"""`Shard`: what a rank holds of a model, and how its layers speak to the other ranks.

An adapter asks it how wide its products are and hands it what has to be summed or joined; how that is
done is lab 20's. `Whole` is the shard of a single rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.contracts.ranks import Collectives, Link, Pipeline
from yaie.core.errors import ConfigError
from yaie.core.gemm import FusedGemm, PlainWeight
from yaie.models.layout import Cut, Width

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Passing:
    """How one stage of a pipeline passes on what it has computed.

    pipeline: lab 20's. draws: the way from the last stage to the first, for the tokens that were drawn.
    """

    pipeline: Pipeline
    draws: Link

    @property
    def stages(self) -> int:
        return self.draws.size

    @property
    def stage(self) -> int:
        return self.draws.rank

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1


class Whole:
    """All of a model.

    size: ranks that split each layer. stages: those that split the layers among them.
    is_first, is_last: whether the embedding is here, and whether the output head is.
    passing: to other stages, if there are any.
    """

    size = 1
    stages = 1
    is_first = is_last = True
    passing: Passing | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is anywhere else."""
        return self.size == self.stages == 1

    def layers(self, total: int) -> range:
        """The layers of this stage."""
        return range(total)

    def heads(self, num_heads: int, num_kv_heads: int) -> tuple[range, range]:
        """(query heads, KV heads) of this rank."""
        return range(num_heads), range(num_kv_heads)

    def width(self, total: int) -> Width:
        """The inner features of a feed-forward layer that this rank computes."""
        return total

    def vocab(self, total: int) -> Width:
        """The tokens whose embeddings, and whose logits, this rank has."""
        return total

    def features(self, heads: range, head_dim: int, total: int) -> Width:
        """The outputs, or inputs, that belong to these of `total` heads."""
        return total * head_dim

    def qkv(self, num_heads: int, num_kv_heads: int, head_dim: int) -> Width:
        """The outputs of query, key and value where the checkpoint has them as one tensor."""
        return (num_heads + 2 * num_kv_heads) * head_dim

    def all_reduce(self, product: Product, bias: Tensor | None) -> Product:
        """A product whose inputs are split over the ranks, as one whose outputs are whole."""
        raise AssertionError("nothing is split")

    def onto(self, fused: FusedGemm, x: Tensor, product: PlainWeight, residual: Tensor) -> Tensor:
        """residual + `all_reduce` product of x; may be written over residual [rows, out]."""
        return fused.onto(x, product, residual)

    def lookup(self, table: Tensor, vocab: Width) -> Product:
        """From token ids [T] int64 to their embeddings [T, hidden]. table: of the tokens `vocab`."""
        return lambda token_ids: F.embedding(token_ids, table)

    def all_agree(self, yes: bool, device: torch.device) -> bool:
        """Whether every rank of this stage says yes. All of them ask."""
        return yes

    def first_token(self, vocab_size: int) -> int:
        """Of those whose logits this rank has."""
        vocab = self.vocab(vocab_size)
        return 0 if isinstance(vocab, int) else vocab.held[0].start

    def all_gather(self, x: Tensor) -> Tensor:
        """[ranks, ...]: this tensor of every rank of this stage. All of them ask."""
        return x[None]

    def all_gather_logits(self, vocab_size: int) -> Product:
        """From this rank's logits [rows, held] to all [rows, vocab_size]."""
        return lambda logits: logits

    def best(self, vocab_size: int) -> Product:
        """From this rank's logits [rows, held] to the token with the highest of all: [rows] int64, -1
        where that is not finite."""
        raise AssertionError("the sampler has all logits")


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
        if self.size == 1:
            return super().all_gather_logits(vocab_size)
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


def check_shapes(
    name: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    *,
    heads: int,
    kv_heads: int,
    inner: int,
    layers: int,
) -> None:
    """Raise ConfigError unless a model of these numbers can be split so.

    inner: width of its feed-forward layers.
    """
    size = tensor_parallel
    for count, what in ((heads, "attention heads"), (inner, "feed-forward features")):
        if count % size:
            raise ConfigError(
                f"tensor_parallel {size} does not divide the {count:,} {what} of {name}: choose one of "
                f"{_told(fitting_sizes(heads, kv_heads, inner))}",
                param="tensor_parallel",
            )
    if kv_heads % size and size % kv_heads:
        raise ConfigError(
            f"tensor_parallel {size} neither divides the {kv_heads} KV heads of {name} nor is a "
            f"multiple of them: choose one of {_told(fitting_sizes(heads, kv_heads, inner))}",
            param="tensor_parallel",
        )
    if pipeline_parallel > layers:
        raise ConfigError(
            f"pipeline_parallel {pipeline_parallel} is more than the {layers} layers of {name}: a stage "
            f"holds at least one, so choose at most {layers}",
            param="pipeline_parallel",
        )


def fitting_sizes(heads: int, kv_heads: int, inner: int) -> list[int]:
    """The values of tensor_parallel that a model of these numbers allows; see `check_shapes`."""
    return [
        size
        for size in range(1, heads + 1)
        if heads % size == inner % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    ]


def _told(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
