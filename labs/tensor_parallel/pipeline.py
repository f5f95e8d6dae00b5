# Lab 20, your part: tasks 20.8, 20.9. The rest is given.
"""Layers on consecutive ranks: a stage computes a microbatch while the next stage has the one before."""

from collections.abc import Callable, Sequence

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer


class Pipeline:
    """See `yaie.core.contracts.ranks.Pipeline`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    # ANCHOR: microbatches
    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        """At most `count` runs of rows, in order; the largest has as few tokens as possible."""
        # TODO 20.8: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.8: not implemented yet; see chapter Tensor parallelism"
        )

    def _runs(self, num_tokens: Sequence[int], most: int) -> list[range]:
        """As few runs of rows as possible with at most so many tokens each."""
        # TODO 20.8: your code here (the reference: 9 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.8: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: microbatches

    # ANCHOR: run
    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        """Pass microbatches through this stage, in order. Returns the results of the last stage."""
        results: list[Tensor] = []
        # TODO 20.9: your code here (the reference: 15 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.9: not implemented yet; see chapter Tensor parallelism"
        )
        return results

    def _ask(
        self, num_tokens: Sequence[int], index: int, empty: Callable[[int], Tensor]
    ) -> tuple[Tensor, Transfer] | None:
        """A tensor for the input of this microbatch, and its transfer. None in the first stage, and for
        an index after the last."""
        # TODO 20.9: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.9: not implemented yet; see chapter Tensor parallelism"
        )

    # ANCHOR_END: run
