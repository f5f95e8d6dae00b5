"""Blocks in a plain dict, which keeps the order of insertion: a use takes one out and puts it back."""

from collections.abc import Collection, Iterable, Sequence

from yaie.core.lives import Life
from yaie.core.request import Request


class Checkpoints:
    """See `yaie.core.contracts.states.Checkpoints`."""

    def __init__(self, first: int, count: int) -> None:
        self._unused = iter(range(first, first + count))
        self._freed: list[int] = []
        self._half = count // 2
        self._slots: dict[int, int] = {}
        self._waiting: dict[int, tuple[Life, int, int]] = {}

    @property
    def filed(self) -> Collection[int]:
        return self._slots.keys()

    @property
    def num_pending(self) -> int:
        return len(self._waiting)

    def depth(self, blocks: Sequence[int]) -> int:
        depth = len(blocks)
        while depth and blocks[depth - 1] not in self._slots:
            depth -= 1
        return depth

    def use(self, block: int) -> int:
        slot = self._slots.pop(block)
        self._slots[block] = slot
        return slot

    def save(self, request: Request, block: int, depth: int) -> int | None:
        self.drop(block)
        if len(self._waiting) == self._half:
            return None
        slot = self._freed.pop() if self._freed else next(self._unused, None)
        if slot is None:
            slot = self._slots.pop(next(iter(self._slots)))
        self._waiting[block] = (Life.of(request), depth, slot)
        return slot

    def drop(self, block: int) -> None:
        if block in self._waiting:
            self._freed.append(self._waiting.pop(block)[2])

    def sweep(self) -> None:
        going = {block: one for block, one in self._waiting.items() if not one[0].is_over}
        self._freed += [one[2] for block, one in self._waiting.items() if block not in going]
        self._waiting = going

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        for at, block in enumerate(mine):
            if self._waiting.get(block, (None, 0, 0))[1] != at + 1:
                continue
            _, _, slot = self._waiting.pop(block)
            if path[at] in self._slots:
                self._freed.append(slot)
            else:
                self._slots[path[at]] = slot

    def has_pending(self, blocks: Iterable[int]) -> bool:
        return any(block in self._waiting for block in blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        self._freed += [self._slots.pop(block) for block in blocks if block in self._slots]


def cut_share(
    start: int, num_tokens: int, block_size: int, wanted: Sequence[int], least: int | None
) -> tuple[int, int]:
    """See `yaie.core.contracts.states.CutShare`."""
    for place in wanted:
        if start < place * block_size <= start + num_tokens:
            return place * block_size - start, place
    over = (start + num_tokens) % block_size
    place = (start + num_tokens) // block_size
    if least is not None and over < num_tokens and place >= least:
        return num_tokens - over, place
    return num_tokens, 0
