"""What an all-reduce costs on a machine of ranks and links, by four algorithms.

The model has a latency and a bandwidth (alpha and beta), as in Thakur, Rabenseifner and Gropp (2005),
"Optimization of Collective Communication Operations in MPICH". Transfers run in rounds: each begins when
the round before it has ended everywhere. The chapter "Tensor parallelism" has the formulas,
and a figure that draws the same transfers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Wires = Literal["switch", "cables"]
Algorithm = Literal["ring", "tree", "one_shot", "two_shot"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Ranks, and how they are joined.

    latency: seconds from the start of a transfer to its first byte, for each link on its way.
    bandwidth: bytes a second of a link, each way.
    wires: "switch" gives each rank one link to a switch, through which it reaches all others. "cables"
    joins each rank to the next and the last to the first: what goes further passes the ranks between, by
    the shorter way, and upwards where both are as long.
    """

    ranks: int
    latency: float
    bandwidth: float
    wires: Wires = "switch"

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.latency < 0 or self.bandwidth <= 0:
            raise ValueError(
                f"no machine has {self.ranks} ranks, {self.latency} s and {self.bandwidth} bytes/s"
            )


@dataclass(frozen=True, slots=True)
class Transfer:
    """From one rank to another.

    part: which of as many equal parts as there are ranks, None for all of the tensor. adds: whether the
    target adds it to what it has; otherwise it replaces that.
    """

    source: int
    target: int
    part: int | None
    adds: bool


Round = list[Transfer]


def rounds(algorithm: Algorithm, ranks: int) -> list[Round]:
    """The transfers of an all-reduce. Those of a round send what their source had before the round."""
    return list(_ROUNDS[algorithm](ranks))


def seconds(algorithm: Algorithm, num_bytes: int, machine: Machine) -> float:
    """How long an all-reduce of a tensor of so many bytes takes. Additions take no time."""
    all_rounds = rounds(algorithm, machine.ranks)
    return sum(round_seconds(one, num_bytes, machine) for one in all_rounds)


def round_seconds(transfers: Round, num_bytes: int, machine: Machine) -> float:
    """The latency of the longest way, and the bytes of the link that carries most."""
    load: Counter[tuple[int, int]] = Counter()
    most_hops = 0
    for transfer in transfers:
        links = _links(transfer, machine)
        hops = len(links) if machine.wires == "cables" else 1
        most_hops = max(most_hops, hops)
        for link in links:
            load[link] += 1 if transfer.part is not None else machine.ranks
    busiest = max(load.values(), default=0) * num_bytes / machine.ranks
    return most_hops * machine.latency + busiest / machine.bandwidth


def bytes_sent(algorithm: Algorithm, num_bytes: int, ranks: int) -> list[float]:
    """What each rank sends, in bytes."""
    sent = [0.0] * ranks
    for transfers in rounds(algorithm, ranks):
        for transfer in transfers:
            sent[transfer.source] += num_bytes / (1 if transfer.part is None else ranks)
    return sent


_SWITCH = -1
"""What stands in a link for the switch."""


def _links(transfer: Transfer, machine: Machine) -> list[tuple[int, int]]:
    """The links of a transfer, each as (from, to): its two directions share nothing."""
    if machine.wires == "switch":
        return [(transfer.source, _SWITCH), (_SWITCH, transfer.target)]
    ranks = machine.ranks
    distance = (transfer.target - transfer.source) % ranks
    step, hops = (1, distance) if 2 * distance <= ranks else (-1, ranks - distance)
    passed = [(transfer.source + step * hop) % ranks for hop in range(hops + 1)]
    return list(pairwise(passed))


def _ring(ranks: int) -> Iterator[Round]:
    """Patarasuk and Yuan (2009): a reduce-scatter around the ring, then an all-gather around it."""
    for turn in range(ranks - 1):
        yield [
            Transfer(rank, (rank + 1) % ranks, (rank - 1 - turn) % ranks, adds=True)
            for rank in range(ranks)
        ]
    for turn in range(ranks - 1):
        yield [
            Transfer(rank, (rank + 1) % ranks, (rank - turn) % ranks, adds=False)
            for rank in range(ranks)
        ]


def _tree(ranks: int) -> Iterator[Round]:
    """A binomial tree: sums go up to rank 0, and the result comes down the same way."""
    up = []
    reach = 1
    while reach < ranks:
        up.append([(rank, rank - reach) for rank in range(reach, ranks, 2 * reach)])
        reach *= 2
    for pairs in up:
        yield [Transfer(child, parent, None, adds=True) for child, parent in pairs]
    for pairs in reversed(up):
        yield [Transfer(parent, child, None, adds=False) for child, parent in pairs]


def _one_shot(ranks: int) -> Iterator[Round]:
    """Everything to every other rank, each of which adds all up."""
    pairs = _pairs(ranks)
    if pairs:
        yield [Transfer(source, target, None, adds=True) for source, target in pairs]


def _two_shot(ranks: int) -> Iterator[Round]:
    """Part r to rank r, which adds it up; then its sum to every other rank."""
    pairs = _pairs(ranks)
    if pairs:
        yield [Transfer(source, target, target, adds=True) for source, target in pairs]
        yield [Transfer(source, target, source, adds=False) for source, target in pairs]


def _pairs(ranks: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(ranks) for b in range(ranks) if a != b]


_ROUNDS: dict[Algorithm, Callable[[int], Iterator[Round]]] = {
    "ring": _ring,
    "tree": _tree,
    "one_shot": _one_shot,
    "two_shot": _two_shot,
}
ALGORITHMS: tuple[Algorithm, ...] = tuple(_ROUNDS)
