"""How many steps a pipeline took, from what each rank did in which order.

A computation takes one step. A transfer takes one too, from when both of its ranks have begun it, and
nothing else takes time. Real stages wait for each other in the same places, with other lengths.
"""

from collections.abc import Sequence

Deed = tuple[str, int]
"""As `Ranks.log` has it: ("send", to), ("receive", source), ("sent", n), ("received", n); and here
("compute", i)."""


def steps_of(logs: Sequence[Sequence[Deed]]) -> int:
    """Steps until the last rank has computed for the last time. logs: of a run that ended, by rank."""
    size = len(logs)
    clocks, places, ends = [0] * size, [0] * size, [0] * size
    begun: dict[str, list[list[int]]] = {
        "send": [[] for _ in range(size)],
        "receive": [[] for _ in range(size)],
    }
    ranks = [rank for rank in range(size) if logs[rank]]
    while ranks:
        before = list(places)
        for rank in ranks:
            while places[rank] < len(logs[rank]):
                deed, number = logs[rank][places[rank]]
                if deed == "compute":
                    clocks[rank] += 1
                    ends[rank] = clocks[rank]
                elif deed in begun:
                    begun[deed][rank].append(clocks[rank])
                else:
                    over = _over(begun, rank, deed, number)
                    if over is None:
                        break
                    clocks[rank] = max(clocks[rank], over)
                places[rank] += 1
        ranks = [rank for rank in ranks if places[rank] < len(logs[rank])]
        assert places != before, "a run that has ended can be followed to its end"
    return ends[-1]


def _over(begun: dict[str, list[list[int]]], rank: int, deed: str, number: int) -> int | None:
    """When a transfer is over; None while the other rank's side of it has not begun yet."""
    sender, receiver = (rank, rank + 1) if deed == "sent" else (rank - 1, rank)
    sends, receives = begun["send"][sender], begun["receive"][receiver]
    if number >= min(len(sends), len(receives)):
        return None
    return max(sends[number], receives[number]) + 1
