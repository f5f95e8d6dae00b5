"""What a launch did to memory, counted while it ran on the CPU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from yaie.cuda.on_cpu.symbols import Symbols


@dataclass(frozen=True, slots=True)
class Traffic:
    """Loads or stores of a launch.

    count, bytes: what single threads asked for. requests: instructions that a warp executes for all of
    its lanes at once. sectors: pieces of 32 bytes that a request touches, summed over requests;
    ideal_sectors: had the same bytes lain side by side. extra_passes: of shared memory, which serves
    a request in one pass unless lanes want different words of one bank.
    """

    count: int = 0
    bytes: int = 0
    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    extra_passes: int = 0

    @property
    def efficiency(self) -> float:
        """Share of the moved sectors that was needed, 1.0 for coalesced accesses."""
        return self.ideal_sectors / self.sectors if self.sectors else 1.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.count + other.count,
            self.bytes + other.bytes,
            self.requests + other.requests,
            self.sectors + other.sectors,
            self.ideal_sectors + other.ideal_sectors,
            self.extra_passes + other.extra_passes,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """What one instruction of a warp asked for. kind: as in `Line`. size: bytes for each lane.

    addresses: by lane, None for a lane that did not take part.
    """

    offset: int
    kind: str
    size: int
    addresses: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Traffic of one line. kind: "global load", "global store", "shared load" or "shared store"."""

    file: str
    line: int
    kind: str
    traffic: Traffic


Site = tuple[int, str, Traffic]
"""Address of the access in the library, kind as in `Line`, and its traffic."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. grid, block: (x, y, z). shared_bytes: of `extern __shared__` memory.

    barriers: how many all blocks passed together. collectives: of warps (shuffles, votes, __syncwarp).
    atomics: by single threads. Local variables and arguments are not counted. requests: of each
    instruction, the first eight that came, in order.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    global_loads: Traffic
    global_stores: Traffic
    shared_loads: Traffic
    shared_stores: Traffic
    barriers: int
    collectives: int
    atomics: int
    sites: Sequence[Site] = field(default=(), repr=False, compare=False)
    requests: Sequence[Request] = field(default=(), repr=False, compare=False)
    symbols: Symbols | None = field(default=None, repr=False, compare=False)

    @property
    def lines(self) -> list[Line]:
        """The traffic of each line of source, most sectors and passes first."""
        if self.symbols is None:
            return []
        total: dict[tuple[str, int, str], Traffic] = {}
        places = self.symbols.lines([offset for offset, _, _ in self.sites])
        for (_, kind, traffic), place in zip(self.sites, places, strict=True):
            key = (*place, kind)
            total[key] = total.get(key, Traffic()) + traffic
        lines = [Line(*key, traffic) for key, traffic in total.items()]
        return sorted(lines, key=lambda x: (-x.traffic.sectors, -x.traffic.extra_passes, x.line))

    def requests_of(self, kind: str) -> list[tuple[int, Request]]:
        """The kept requests of a kind, each with its line of source (0 if that is not known)."""
        chosen = [request for request in self.requests if request.kind == kind]
        if self.symbols is None:
            return [(0, request) for request in chosen]
        places = self.symbols.lines([request.offset for request in chosen])
        return [(line, request) for (_, line), request in zip(places, chosen, strict=True)]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def global_bytes(self) -> int:
        """Bytes that threads loaded from and stored to global memory."""
        return self.global_loads.bytes + self.global_stores.bytes

    @property
    def bank_conflicts(self) -> int:
        return self.shared_loads.extra_passes + self.shared_stores.extra_passes


@dataclass(frozen=True, slots=True)
class Settings:
    """seed: of the order of blocks and threads. step_limit: basic blocks that a thread may execute.
    dry: launches are checked and recorded, and no kernel runs. failing: launch() returns an error of
    CUDA's and does nothing."""

    seed: int = 0
    step_limit: int = 20_000_000
    dry: bool = False
    failing: bool = False


_recordings: list[list[Launch]] = []
_settings: list[Settings] = [Settings()]


@contextmanager
def recording() -> Iterator[list[Launch]]:
    """Collect every launch within. Counting makes kernels run some times slower."""
    launches: list[Launch] = []
    _recordings.append(launches)
    try:
        yield launches
    finally:
        _recordings[:] = [other for other in _recordings if other is not launches]


@contextmanager
def settings(
    *,
    seed: int | None = None,
    step_limit: int | None = None,
    dry: bool | None = None,
    failing: bool | None = None,
) -> Iterator[Settings]:
    """Run kernels in another order, with another limit, or not at all, within. None: as outside."""
    outer = _settings[-1]
    inner = Settings(
        outer.seed if seed is None else seed,
        outer.step_limit if step_limit is None else step_limit,
        outer.dry if dry is None else dry,
        outer.failing if failing is None else failing,
    )
    _settings.append(inner)
    try:
        yield inner
    finally:
        _settings.pop()


def current_settings() -> Settings:
    return _settings[-1]


def is_recording() -> bool:
    return bool(_recordings)


def record(launches: list[Launch]) -> None:
    for collected in _recordings:
        collected.extend(launches)
