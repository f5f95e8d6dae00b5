"""Cuts by dynamic programming; all inputs are asked for at the start, and one send is on its way."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer


class Pipeline:
    def __init__(self, link: Link) -> None:
        self._link = link

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        rows = len(num_tokens)
        before = [0, *accumulate(num_tokens)]
        # best[end]: (largest run, its runs) of the first `end` rows, with so many runs or fewer.
        best: list[tuple[int, list[range]]] = [
            (before[end], [range(end)] if end else []) for end in range(rows + 1)
        ]
        for _ in range(1, count):
            better = [best[0]]
            for end in range(1, rows + 1):
                choices = [
                    (max(best[begin][0], before[end] - before[begin]), begin)
                    for begin in range(end)
                ]
                largest, begin = min(choices)
                cut = (largest, [*best[begin][1], range(begin, end)])
                better.append(cut if largest < best[end][0] else best[end])
            best = better
        return best[rows][1]

    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        rank, is_last = self._link.rank, self._link.rank == self._link.size - 1
        inputs = [empty(tokens) for tokens in num_tokens] if rank else []
        arrivals = [self._link.receive(into, rank - 1) for into in inputs]
        results: list[Tensor] = []
        on_its_way: Transfer | None = None
        for index in range(len(num_tokens)):
            if rank:
                arrivals[index].wait()
            result = compute(index, inputs[index] if rank else None)
            if on_its_way is not None:
                on_its_way.wait()
            if is_last:
                results.append(result)
            else:
                on_its_way = self._link.send(result, rank + 1)
        if on_its_way is not None:
            on_its_way.wait()
        return results
