"""What ranks of one process do together: the collectives for tasks that are not about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.kit.expect import Fault
from grader.kit.ranks import SAME_CALLS, Ranks
from grader.kit.script import note, start_script

ONE_SHAPE = "{0} takes tensors of one shape on all ranks; here the ranks hold different shapes."


@dataclass(slots=True)
class Call:
    """name: of the method. given: its tensor as it was."""

    name: str
    given: Tensor
    line: str

    def __str__(self) -> str:
        shape, dtype = list(self.given.shape), str(self.given.dtype).removeprefix("torch.")
        return f"{self.name} of {shape} {dtype}"


def _why_apart(made: Sequence[Call]) -> str:
    """What calls that met lack: one name, one dtype, or one shape."""
    name = made[0].name
    if any(call.name != name for call in made):
        return SAME_CALLS
    if len({call.given.dtype for call in made}) > 1:
        return f"{name} takes tensors of one dtype on all ranks."
    told, shapes = ONE_SHAPE.format(name), [call.given.shape for call in made]
    if name != "all_gather" or len({len(shape) for shape in shapes}) > 1:
        return told
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    return f"{told} Pad to the largest, here {largest}, and cut afterwards."


class SimGroup:
    """`Collectives` between ranks of one process: sums in the order of the ranks, and writes to what an
    all-reduce is given, as a real one may."""

    def __init__(self, ranks: Ranks, calls: list[list[Call]], rank: int) -> None:
        """calls: those of each rank so far."""
        self.rank = rank
        self.size = ranks.size
        self._ranks = ranks
        self._calls = calls

    def all_reduce(self, x: Tensor) -> Tensor:
        parts = self._meet("all_reduce", x)
        self._ranks.sent[self.rank] += 2 * (self.size - 1) * x.nbytes // self.size
        total = torch.stack(parts).sum(dim=0).to(x.dtype)
        x.copy_(total)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        parts = self._meet("all_gather", x)
        self._ranks.sent[self.rank] += (self.size - 1) * x.nbytes
        return torch.stack(parts)

    def _meet(self, name: str, x: Tensor) -> list[Tensor]:
        """The tensors of all ranks, once all have made this call."""
        ranks, calls = self._ranks, self._calls
        call = Call(name, x.detach().clone(), ranks.line())
        note(f"rank {self.rank} calls {call}")
        calls[self.rank].append(call)
        number = len(calls[self.rank])

        def missing() -> list[int]:
            return [rank for rank, made in enumerate(calls) if len(made) < number]

        def what() -> str:
            others = ", ".join(map(str, missing()))
            return f"in {name} for {'ranks' if ',' in others else 'rank'} {others}"

        ranks.wait(self.rank, lambda: not missing(), what)
        made = [of_rank[number - 1] for of_rank in calls]
        for rank, other in enumerate(made):
            if str(other) != str(call):
                problem = f"rank {self.rank} and rank {rank} meet in different calls"
                got = f"rank {self.rank}: {call}\nrank {rank}: {other}"
                raise Fault(problem, "the same call", got, _why_apart(made), call.line)
        return [other.given for other in made]


def run_together(
    part: Any, size: int, work: Callable[[SimGroup], Any], order: Sequence[int] = ()
) -> tuple[list[Any], Ranks]:
    """What `work` returns with each rank's group, and the ranks afterwards. Begins a new script."""
    start_script()
    note(f"# {size} ranks" if size > 1 else "# 1 rank")
    ranks = Ranks(part, size, order)
    calls: list[list[Call]] = [[] for _ in range(size)]
    return ranks.run(lambda rank: work(SimGroup(ranks, calls, rank))), ranks
