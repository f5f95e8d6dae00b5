"""`Whole`: what a single rank holds of a model, and what an adapter asks of any rank.

An adapter asks how wide its products are and hands over what has to be summed or joined. Where that is
split, `Shard` answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.contracts.ranks import Link, Pipeline
from yaie.core.gemm import FusedGemm, PlainWeight
from yaie.models.layout import Width

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
        return partial(F.embedding, weight=table)

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
