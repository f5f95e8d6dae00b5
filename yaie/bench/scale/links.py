"""A link's latency and bandwidth from timed all-reduces, and what collectives take on such links."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from yaie.bench.collectives import Algorithm, Machine, seconds
from yaie.bench.scale.sizes import Call
from yaie.core.errors import YaieError


@dataclass(frozen=True, slots=True)
class Links:
    """How ranks are joined: by the algorithm that sums over them, on links to a switch.

    latency: seconds. bandwidth: bytes a second, each way.
    """

    algorithm: Algorithm
    latency: float
    bandwidth: float

    def machine(self, ranks: int) -> Machine:
        """So many ranks joined so."""
        return Machine(ranks, self.latency, self.bandwidth)

    def all_reduce(self, num_bytes: int, ranks: int) -> float:
        """Seconds of one."""
        return seconds(self.algorithm, num_bytes, self.machine(ranks))

    def all_gather(self, num_bytes: int, ranks: int) -> float:
        """Seconds of one: in rounds along a ring, or everything at once."""
        rounds = 1 if self.algorithm in ("one_shot", "two_shot") else ranks - 1
        return rounds * self.latency + (ranks - 1) * num_bytes / self.bandwidth

    def collectives(self, made: Iterable[Call], ranks: int) -> float:
        """Seconds of all of these calls."""
        kinds = {"all_reduce": self.all_reduce, "all_gather": self.all_gather}
        return sum(call.times * kinds[call.kind](call.num_bytes, ranks) for call in made)

    def send(self, num_bytes: int) -> float:
        """Seconds of a message from one rank to another."""
        return self.latency + num_bytes / self.bandwidth


def fit(algorithm: Algorithm, ranks: int, points: Mapping[int, float]) -> Links:
    """The latency and bandwidth with which this algorithm comes nearest to the points.

    points: seconds by the bytes of the tensor, at least two sizes. Near is meant as a ratio: the small
    ones, which most of a decode step's are, count as much as the large ones. Raises YaieError if the
    larger ones take no longer.
    """
    unit = Machine(ranks, 1.0, 1.0)
    rounds = seconds(algorithm, 0, unit)
    # A tensor of as many bytes as there are ranks has parts of one byte.
    per_byte = (seconds(algorithm, ranks, unit) - rounds) / ranks
    sizes = np.array(list(points), dtype=np.float64)
    times = np.array(list(points.values()), dtype=np.float64)
    terms = np.stack([np.full_like(sizes, rounds), per_byte * sizes], axis=1) / times[:, None]
    latency, slope = np.linalg.lstsq(terms, np.ones_like(times), rcond=None)[0]
    if latency < 0:  # then the bytes have to explain it all
        latency = 0.0
        slope = float(terms[:, 1].sum() / (terms[:, 1] ** 2).sum())
    if slope <= 0:
        raise YaieError(
            "all-reduces of more bytes took no longer than small ones: measure again on a machine that "
            "does nothing else"
        )
    return Links(algorithm, float(latency), float(1 / slope))
