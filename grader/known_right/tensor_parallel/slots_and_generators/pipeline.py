"""Inputs come from a generator that is one ahead, and results leave through another one; runs are cut
by the sums of consecutive rows, of which the smallest that is enough is looked for."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer


class Pipeline:
    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        low, high = max(num_tokens, default=0), sum(num_tokens)
        limits = range(low, high + 1)
        at = bisect_left(limits, True, key=lambda limit: self._number(num_tokens, limit) <= count)
        return list(self._cut(num_tokens, limits[at] if num_tokens else 0))

    def _number(self, num_tokens: Sequence[int], limit: int) -> int:
        return sum(1 for _ in self._cut(num_tokens, limit))

    def _cut(self, num_tokens: Sequence[int], limit: int) -> Iterator[range]:
        begin, filled = 0, 0
        for row, tokens in enumerate(num_tokens):
            if filled + tokens > limit:
                yield range(begin, row)
                begin, filled = row, 0
            filled += tokens
        if num_tokens:
            yield range(begin, len(num_tokens))

    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        inputs = self._inputs(num_tokens, empty)
        outputs = (compute(index, given) for index, given in enumerate(inputs))
        return list(outputs) if self.link.rank + 1 == self.link.size else self._send(outputs)

    def _inputs(
        self, num_tokens: Sequence[int], empty: Callable[[int], Tensor]
    ) -> Iterator[Tensor | None]:
        if not self.link.rank:
            yield from (None for _ in num_tokens)
            return
        before: tuple[Tensor, Transfer] | None = None
        for tokens in num_tokens:
            into = empty(tokens)
            asked = into, self.link.receive(into, self.link.rank - 1)
            if before is not None:
                before[1].wait()
                yield before[0]
            before = asked
        if before is not None:
            before[1].wait()
            yield before[0]

    def _send(self, outputs: Iterator[Tensor]) -> list[Tensor]:
        on_their_way = [self.link.send(output, self.link.rank + 1) for output in outputs]
        while on_their_way:
            on_their_way.pop().wait()
        return []
