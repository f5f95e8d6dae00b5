"""What figures of a warp share: requests that the CUDA-on-CPU runtime kept, by lane."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from book.tools.traces._story import counted
from yaie.cuda.on_cpu import Launch, recording
from yaie.cuda.on_cpu.launches import Request, Traffic

SECTOR, BANKS, WORD = 32, 32, 4


def launch_of(call: Callable[[], object]) -> Launch:
    """The one launch of a call that moves most bytes of global memory."""
    with recording() as launches:
        call()
    return max(launches, key=lambda launch: launch.global_bytes)


def kept(launch: Launch, kind: str) -> list[tuple[int, Request]]:
    """The kept requests of the instruction of a kind that asks for most bytes, with its line."""
    requests = launch.requests_of(kind)
    asked: Counter[int] = Counter()
    for _, request in requests:
        asked[request.offset] += len({*request.addresses} - {None}) * request.size
    first: dict[int, int] = {}
    for _, request in requests:
        first.setdefault(request.offset, lowest(request))
    # Of equals the one with lower addresses: where code lies is the compiler's choice.
    offset = min(first, key=lambda site: (-asked[site], first[site]), default=None)
    return [(line, request) for line, request in requests if request.offset == offset]


def lowest(request: Request) -> int:
    """The lowest address that a lane asked for."""
    return min(at for at in request.addresses if at is not None)


def global_step(kind: str, number: int, line: int, request: Request) -> dict[str, Any]:
    """A request to global memory: sectors from the first on, and where in them each lane's bytes lie."""
    asked = [(lane, at) for lane, at in enumerate(request.addresses) if at is not None]
    last = request.size - 1
    touched = sorted(
        {piece for _, at in asked for piece in range(at // SECTOR, (at + last) // SECTOR + 1)}
    )
    place = {sector: index for index, sector in enumerate(touched)}
    useful = len({at for _, at in asked}) * request.size
    used = round(100 * useful / (SECTOR * len(touched)))
    verb = "ask for" if kind == "load" else "write"
    return {
        "say": (
            f"{kind.capitalize()} {number}: {counted(len(asked), 'lane')} {verb} "
            f"{counted(request.size, 'byte')} each, in {counted(len(touched), 'sector')}. "
            f"{used}% of what moves is used."
        ),
        "kind": kind,
        "line": line,
        "size": request.size,
        "lanes": [[lane, place[at // SECTOR], at % SECTOR] for lane, at in asked],
        "gaps": [i for i, (a, b) in enumerate(pairwise(touched)) if b - a > 1],
        "sectors": len(touched),
    }


def shared_step(kind: str, line: int, request: Request) -> dict[str, Any]:
    """A request to shared memory: [lane, its first word], counted from a word of bank 0."""
    asked = [(lane, at) for lane, at in enumerate(request.addresses) if at is not None]
    base = min(at for _, at in asked) // (BANKS * WORD) * (BANKS * WORD)
    words = f"{counted(len(asked), 'lane')}, {request.size} bytes each"
    return {
        "say": f"A {kind} of line {line}: {words}.",
        "kind": kind,
        "line": line,
        "size": request.size,
        "lanes": [[lane, (at - base) // WORD] for lane, at in asked],
    }


def total(traffic: Sequence[Traffic]) -> str:
    """What a whole launch adds up to."""
    moved = sum(each.sectors for each in traffic)
    needed = sum(each.ideal_sectors for each in traffic)
    return f" The whole launch moves {moved:,} sectors, where {needed:,} would do."
