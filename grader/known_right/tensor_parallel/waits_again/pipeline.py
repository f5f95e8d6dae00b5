"""A stage waits for its last result before it sends the next one, and for all of them at the end, also
for those that are over."""

from collections.abc import Callable, Sequence

from torch import Tensor

from yaie.core.contracts.ranks import Link, Transfer


class Pipeline:
    def __init__(self, link: Link) -> None:
        self._link = link

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        """The limit is raised to the next size at which a run would take one row more."""
        most = max(num_tokens, default=0)
        while True:
            runs, wanted = self._filled(num_tokens, most)
            if len(runs) <= count:
                return runs
            most = min(wanted)

    def _filled(self, num_tokens: Sequence[int], most: int) -> tuple[list[range], list[int]]:
        """Runs of at most `most` tokens; and what each would have with the row after it."""
        runs, wanted, begin, filled = list[range](), list[int](), 0, 0
        for row, tokens in enumerate(num_tokens):
            if filled + tokens > most:
                runs.append(range(begin, row))
                wanted.append(filled + tokens)
                begin, filled = row, 0
            filled += tokens
        return [*runs, range(begin, len(num_tokens))] if num_tokens else [], wanted

    def run(
        self,
        num_tokens: Sequence[int],
        compute: Callable[[int, Tensor | None], Tensor],
        empty: Callable[[int], Tensor],
    ) -> list[Tensor]:
        rank, last = self._link.rank, self._link.size - 1
        inputs: list[Tensor] = []
        arrivals: list[Transfer] = []
        sends: list[Transfer] = []
        results: list[Tensor] = []
        for index in range(len(num_tokens)):
            for tokens in num_tokens[len(inputs) : index + 2] if rank else ():
                inputs.append(empty(tokens))
                arrivals.append(self._link.receive(inputs[-1], rank - 1))
            for arrival in arrivals[: index + 1]:
                arrival.wait()
            result = compute(index, inputs[index] if rank else None)
            if rank == last:
                results.append(result)
                continue
            if sends:
                sends[-1].wait()
            sends.append(self._link.send(result, rank + 1))
        for transfer in sends:
            transfer.wait()
        return results
