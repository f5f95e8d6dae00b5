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
        # BEGIN SOLUTION 20.8
        low, high = max(num_tokens, default=0), sum(num_tokens)
        while low < high:
            middle = (low + high) // 2
            if len(self._runs(num_tokens, middle)) <= count:
                high = middle
            else:
                low = middle + 1
        return self._runs(num_tokens, low)
        # END SOLUTION

    # BEGIN SOLUTION 20.8
    def _runs(self, num_tokens: Sequence[int], most: int) -> list[range]:
        """As few runs of rows as possible with at most so many tokens each."""
        runs: list[range] = []
        filled = most
        for row, tokens in enumerate(num_tokens):
            if filled + tokens > most:
                runs.append(range(row, row))
                filled = 0
            runs[-1] = range(runs[-1].start, row + 1)
            filled += tokens
        return runs

    # END SOLUTION

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
        # BEGIN SOLUTION 20.9
        results: list[Tensor] = []
        sending: list[Transfer] = []
        coming = self._ask(num_tokens, 0, empty)
        for index in range(len(num_tokens)):
            given = None
            if coming is not None:
                given, arrival = coming
                arrival.wait()
                coming = self._ask(num_tokens, index + 1, empty)
            result = compute(index, given)
            if self._link.rank == self._link.size - 1:
                results.append(result)
            else:
                sending.append(self._link.send(result, self._link.rank + 1))
        for transfer in sending:
            transfer.wait()
        return results
        # END SOLUTION

    # BEGIN SOLUTION 20.9
    def _ask(
        self, num_tokens: Sequence[int], index: int, empty: Callable[[int], Tensor]
    ) -> tuple[Tensor, Transfer] | None:
        """A tensor for the input of this microbatch, and its transfer. None in the first stage, and for
        an index after the last."""
        if self._link.rank == 0 or index == len(num_tokens):
            return None
        into = empty(num_tokens[index])
        return into, self._link.receive(into, self._link.rank - 1)

    # END SOLUTION

    # ANCHOR_END: run
