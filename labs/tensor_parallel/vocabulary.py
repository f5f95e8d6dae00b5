# Lab 20, your part (edition 2): tasks 20.6, 20.7. The rest is given.
"""Logits of which each rank holds some tokens' columns: all of them together, or just the winner."""

from collections.abc import Callable

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Collectives

from .shares import share


class VocabLogits:
    """See `yaie.core.contracts.ranks.VocabLogits`."""

    def __init__(self, vocab_size: int, group: Collectives) -> None:
        self._group = group
        self._shares = [share(vocab_size, rank, group.size) for rank in range(group.size)]

    # ANCHOR: gather
    def gather(self, logits: Tensor) -> Tensor:
        """logits: [rows, held]. Returns [rows, vocab_size], in the order of the vocabulary."""
        # TODO 20.6: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.6: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: gather

    # ANCHOR: arg_max
    def arg_max(self, logits: Tensor) -> Tensor:
        """The token with the highest logit of each row, on any rank: [rows] int64."""
        # TODO 20.7: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.7: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: arg_max

    # ANCHOR: draw
    def draw(self, logits: Tensor, noise: Callable[[range], Tensor]) -> Tensor:
        """One token for each row, drawn by the Gumbel trick of lab 1: [rows] int64."""
        # TODO 20.7: your code here (the reference: 1 line).
        raise NotImplementedError(
            "tensor_parallel task 20.7: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: draw
