"""Known machines, whose figures are those of `book/evidence`; a test compares them."""

from dataclasses import dataclass, field

from yaie.bench.collectives import Algorithm
from yaie.bench.scale.links import Links, fit

MEASURED_LAYERS = 32
"""Of the model whose steps were measured: Llama 3.1 8B's shape."""


@dataclass(frozen=True, slots=True)
class Known:
    """One kind of device, and how two of them sum over their link.

    bytes_per_second, operations_per_second: what one can do. step_ms: by batch, what a decode step of
    the 8B shape took on one device; limit_ms: the least that it can take, for the same contexts.
    all_reduce: by algorithm, seconds by the bytes of the tensor, on two devices.
    """

    label: str
    bytes_per_second: float
    operations_per_second: float
    step_ms: dict[int, float]
    limit_ms: dict[int, float]
    all_reduce: dict[Algorithm, dict[int, float]] = field(default_factory=dict)

    def links(self, algorithm: Algorithm) -> Links:
        """The links that fit what was measured."""
        return fit(algorithm, 2, self.all_reduce[algorithm])

    @property
    def fixed_seconds(self) -> float:
        """Of each layer at batch 1: what it takes beside reading. More ranks do not shorten it."""
        smallest = min(self.step_ms)
        return (self.step_ms[smallest] - self.limit_ms[smallest]) / 1e3 / MEASURED_LAYERS

    def factor(self, rows: int) -> float:
        """How many times the least time the rest takes, in a step of so many rows: between two batches
        that were measured on a straight line, beyond them as at the last one."""
        fixed = 1e3 * MEASURED_LAYERS * self.fixed_seconds
        known = {b: (ms - fixed) / self.limit_ms[b] for b, ms in sorted(self.step_ms.items())}
        batches = list(known)
        if rows <= batches[0] or rows >= batches[-1]:
            return known[batches[0] if rows <= batches[0] else batches[-1]]
        above = next(batch for batch in batches if batch >= rows)
        below = batches[batches.index(above) - 1]
        share = (rows - below) / (above - below)
        return (1 - share) * known[below] + share * known[above]


ROW = 8192
"""Bytes of a row of the all-reduces that were measured: 4,096 numbers of bfloat16."""


def _points(microseconds: dict[int, float]) -> dict[int, float]:
    return {rows * ROW: 1e-6 * us for rows, us in microseconds.items()}


MACHINES: dict[str, Known] = {
    "h200": Known(
        label="H200s joined by NVLink",
        bytes_per_second=4263215049398.8545,
        operations_per_second=680200613612724.5,
        step_ms={1: 4.139901054687645, 8: 5.092916304687556, 32: 5.690490320312769,
                 128: 9.886187179687589, 256: 16.6402740546876},
        limit_ms={1: 3.5544780360391997, 8: 3.790352692219585, 32: 4.599065799123764,
                  128: 7.833918226740479, 256: 12.1470547968961},
        all_reduce={
            "ring": _points({1: 17.6, 32: 19.6, 256: 37.7}),
            "one_shot": _points({1: 6.7, 32: 8.1, 256: 18.6}),
            "two_shot": _points({1: 6.4, 32: 7.4, 256: 12.8}),
        },
    )
}  # fmt: skip
"""NCCL's all-reduce counts as a ring."""
