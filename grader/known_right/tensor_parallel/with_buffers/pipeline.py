"""Runs are cut by a limit that is tried from below; sends wait in a queue of two."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer


class Pipeline:
    def __init__(self, link: Link) -> None:
        self._link = link

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        before = tuple(accumulate(num_tokens, initial=0))
        least, most = max(num_tokens, default=1), before[-1]
        while least < most:
            limit = least + (most - least) // 2
            if len(self._cut(before, limit)) > count:
                least = limit + 1
            else:
                most = limit
        return self._cut(before, least)

    def _cut(self, before: tuple[int, ...], limit: int) -> list[range]:
        found, begin = list[range](), 0
        while begin < len(before) - 1:
            end = bisect_right(before, before[begin] + limit) - 1
            found.append(range(begin, end))
            begin = end
        return found

    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        rank, is_last = self._link.rank, self._link.rank + 1 == self._link.size
        sizes = deque(num_tokens)
        asked: deque[tuple[Tensor, Transfer]] = deque()
        leaving: deque[Transfer] = deque()
        results: list[Tensor] = []
        self._ask(sizes, asked, empty)
        for index, _ in enumerate(num_tokens):
            self._ask(sizes, asked, empty)
            given = None
            if rank:
                given, transfer = asked.popleft()
                transfer.wait()
            result = compute(index, given)
            if is_last:
                results.append(result)
                continue
            leaving.append(self._link.send(result, rank + 1))
            if len(leaving) > 2:
                leaving.popleft().wait()
        while leaving:
            leaving.popleft().wait()
        return results

    def _ask(
        self,
        sizes: deque[int],
        asked: deque[tuple[Tensor, Transfer]],
        empty: Callable[[int], Tensor],
    ) -> None:
        if sizes and self._link.rank:
            into = empty(sizes.popleft())
            asked.append((into, self._link.receive(into, self._link.rank - 1)))
