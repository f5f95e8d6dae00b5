# Lab 20, your part (edition 2): tasks 20.8, 20.9. The rest is given.
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

    # TODO 20.8, if you like: helpers of your own (the reference: 11 lines).

    # ANCHOR_END: microbatches

    # ANCHOR: run
    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        """Pass microbatches through this stage, in order. Returns the results of the last stage.

        Cost: a step for each call of `compute`, and one for a transfer, from when both of its ranks have
        begun it. The last of S stages has computed n microbatches after n + 2 (S - 1) steps.
        """
        # TODO 20.9: your code here (the reference: 17 lines).
        raise NotImplementedError(
            "tensor_parallel task 20.9: not implemented yet; see chapter Tensor parallelism"
        )

    # TODO 20.9, if you like: helpers of your own (the reference: 9 lines).

    # ANCHOR_END: run
