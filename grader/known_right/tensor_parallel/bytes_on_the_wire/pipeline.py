"""What goes to the next stage is bytes; a stage asks two inputs ahead, and keeps two sends."""

from collections.abc import Callable, Sequence

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer

from .ring import as_bytes


class Pipeline:
    def __init__(self, link: Link) -> None:
        self._link = link

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        """The largest run shrinks by one token until the rows need more runs than there may be."""
        best: list[range] = [range(len(num_tokens))] if num_tokens else []
        while best:
            largest = max(sum(num_tokens[row] for row in run) for run in best)
            smaller = self._filled(num_tokens, largest - 1)
            if smaller is None or len(smaller) > count:
                break
            best = smaller
        return best

    def _filled(self, num_tokens: Sequence[int], most: int) -> list[range] | None:
        """As few runs as there can be with so many tokens; None if a row is larger."""
        runs, begin, filled = list[range](), 0, 0
        for row, tokens in enumerate(num_tokens):
            if tokens > most:
                return None
            if filled + tokens > most:
                runs.append(range(begin, row))
                begin, filled = row, 0
            filled += tokens
        return [*runs, range(begin, len(num_tokens))]

    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        rank, count = self._link.rank, len(num_tokens)
        results: dict[int, Tensor] = {}
        inputs: dict[int, tuple[Tensor, Transfer]] = {}
        sends: dict[int, Transfer] = {}
        for index in range(count):
            for ahead in range(index, min(index + 3, count)):
                if rank > 0 and ahead not in inputs:
                    into = empty(num_tokens[ahead])
                    inputs[ahead] = into, self._link.receive(as_bytes(into), rank - 1)
            given = None
            if rank > 0:
                given, arrival = inputs[index]
                arrival.wait()
            result = compute(index, given)
            if rank == self._link.size - 1:
                results[index] = result
                continue
            sends[index] = self._link.send(as_bytes(result), rank + 1)
            if index - 2 in sends:
                sends.pop(index - 2).wait()
        for transfer in sends.values():
            transfer.wait()
        return [results[index] for index in sorted(results)]
