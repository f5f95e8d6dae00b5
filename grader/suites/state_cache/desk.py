"""Requests and their blocks, as the suite of lab 22 hands them to `Checkpoints`; and a plain model."""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from grader.kit import expect, note, start_script, watch
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

FIRST = 100


def running(name: str) -> Request:
    """A request that has been admitted."""
    request = Request(name, [1, 2, 3], SamplingParams(), max_tokens=9)
    request.status = RequestStatus.RUNNING
    return request


def told(checkpoints: Any) -> str:
    return f"filed: {list(checkpoints.filed)}, num_pending: {checkpoints.num_pending}"


def make(part: ModuleType, count: int) -> Any:
    """Slots from FIRST on."""
    start_script()
    note(f"checkpoints = Checkpoints({FIRST}, {count})")
    return watch(part.Checkpoints(FIRST, count), "checkpoints", told)


def keep(checkpoints: Any, request: Request, block: int, depth: int = 1) -> Any:
    """Save after a block, and file it as it is; the slot."""
    slot = checkpoints.save(request, block, depth)
    pending = checkpoints.num_pending
    expect(slot is not None, f"no slot for the state after block {block}, with {pending} pending")
    path = [*range(1000 + 10 * block, 1000 + 10 * block + depth - 1), block]
    checkpoints.file(path, path)
    return slot


@dataclass
class Plain:
    """What must be true, without a thought for cost. order: blocks in the tree, by last use."""

    count: int
    order: list[int] = field(default_factory=list)
    slot: dict[int, int] = field(default_factory=dict)
    pending: dict[int, tuple[Request, int, int, int]] = field(default_factory=dict)

    def room(self) -> int:
        """How many slots are free."""
        return self.count - len(self.order) - len(self.pending)

    def drop(self, block: int) -> None:
        self.pending.pop(block, None)

    def may_save(self, block: int) -> bool:
        others = len(self.pending) - (block in self.pending)
        return others < self.count // 2

    def save(self, request: Request, block: int, depth: int, slot: int) -> None:
        self.drop(block)
        if not self.room():
            self.slot.pop(self.order.pop(0))
        self.pending[block] = (request, request.num_preemptions, depth, slot)

    def use(self, block: int) -> None:
        self.order.remove(block)
        self.order.append(block)

    def sweep(self) -> None:
        for block, (request, life, _, _) in list(self.pending.items()):
            if request.status is not RequestStatus.RUNNING or request.num_preemptions != life:
                del self.pending[block]

    def file(self, mine: list[int], path: list[int]) -> None:
        for depth, (block, kept) in enumerate(zip(mine, path, strict=True), 1):
            if block in self.pending and self.pending[block][2] == depth:
                *_, slot = self.pending.pop(block)
                if kept not in self.slot:
                    self.order.append(kept)
                    self.slot[kept] = slot

    def evicted(self, blocks: list[int]) -> None:
        for block in blocks:
            if block in self.slot:
                self.order.remove(block)
                del self.slot[block]

    def depth(self, blocks: list[int]) -> int:
        return max((i + 1 for i, block in enumerate(blocks) if block in self.slot), default=0)

    def taken(self) -> set[int]:
        return {*self.slot.values(), *(one[3] for one in self.pending.values())}
