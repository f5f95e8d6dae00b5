"""Where states are kept for other requests, and where requests go on from them.

A state is what it is behind the last token that was computed: unlike keys and values, which stay, it can
be kept at the end of a step alone. So chunks are cut to end where a state is worth keeping:

    where texts part      behind the blocks that another text had alike, without a state there
    at a text's end       behind its last whole block that leaves a token to compute
    where a chunk ends    that is cut anyway, because the step's budget is used up
    now and then          behind a block that decodes fill, for the next turn of a chat; the newest alone

The step itself copies: from a checkpoint to the seat before its forward pass, and from the seat to a
checkpoint behind it. Steps are carried out in order, so a slot that is given away may be in use by a
step in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import RadixTree
from yaie.core.contracts.states import CutShare
from yaie.core.request import Request
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask
from yaie.engine.states.awaited import WORTH, AwaitedCheckpoints

DECODED = 16
"""Blocks that decodes fill from one checkpoint to the next."""
NONE = -1


class Moves(Ask):
    """What a step copies: `resumed`, the slots that rows begin from, and `kept`, those that they are
    copied to; NONE where a row has no such."""

    name: ClassVar[str] = "states"

    def __init__(self) -> None:
        self.resumed: dict[Request, int] = {}
        self.kept: dict[Request, int] = {}

    def wants(self, item: ScheduledRequest) -> bool:
        return item.request in self.resumed or item.request in self.kept

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        requests = [item.request for _, item in asking]
        return {
            "rows": ints([row for row, _ in asking]),
            "resumed": ints([self.resumed.get(request, NONE) for request in requests]),
            "kept": ints([self.kept.get(request, NONE) for request in requests]),
        }


@dataclass(slots=True)
class Course:
    """Of a request since it was last admitted. life: its `num_preemptions`. depth: of the last state
    that was kept of it, or that it went on from, in blocks. wanted: where else one is to be kept, in
    ascending order. decoded: the block of the last one that decodes have reached. missed: where decodes
    last reached a place for one, and there was no slot."""

    life: int
    depth: int
    wanted: list[int] = field(default_factory=list)
    decoded: int | None = None
    missed: int = 0


class CheckpointStage:
    """A PlanStage. cut_share: of lab 22, as the checkpoints are."""

    def __init__(
        self, tree: RadixTree, checkpoints: AwaitedCheckpoints, cut_share: CutShare
    ) -> None:
        self._tree = tree
        self._size = tree.block_size
        self._checkpoints = checkpoints
        self._cut_share = cut_share
        self._courses: WeakKeyDictionary[Request, Course] = WeakKeyDictionary()

    def extend(self, plan: StepPlan) -> None:
        """See PlanStage. Shares may shrink."""
        moves = Moves()
        for item in plan.scheduled:  # all of them, before a slot is given away
            self._begin(item, moves)
        self._checkpoints.sweep()
        for item in plan.scheduled:
            self._keep(item, moves)
        if moves.resumed or moves.kept:
            plan.asks.append(moves)
            plan.scheduled.sort(key=lambda item: item.num_tokens > 1)

    def _begin(self, item: ScheduledRequest, moves: Moves) -> None:
        """A request that was admitted goes on from a checkpoint, if its table is not empty."""
        request = item.request
        course = self._courses.get(request)
        if course is not None and course.life == request.num_preemptions:
            return
        depth = item.start // self._size
        if item.start:
            moves.resumed[request] = self._checkpoints.use(item.block_table[depth - 1])
        self._courses[request] = Course(request.num_preemptions, depth, self._wanted(item, depth))

    def _wanted(self, item: ScheduledRequest, depth: int) -> list[int]:
        tokens = item.request.token_ids
        last = (len(tokens) - 1) // self._size
        found = self._tree.peek(tokens, last)
        parted, wanted = len(found), [depth]
        if found:
            self._checkpoints.claim(found[-1], item.request)
        for place in (parted, last):
            if place - wanted[-1] >= WORTH:
                wanted.append(place)
        return wanted[1:]

    def _keep(self, item: ScheduledRequest, moves: Moves) -> None:
        """Cut a share at the place where its state is kept, if it reaches one."""
        course = self._courses[item.request]
        if item.num_tokens == 1 and item.samples:
            self._keep_decoded(item, course, moves)
            return
        least = None if item.samples else course.depth + WORTH
        num_tokens, depth = self._cut_share(
            item.start, item.num_tokens, self._size, course.wanted, least
        )
        if not depth:
            return
        slot = self._checkpoints.save(item.request, item.block_table[depth - 1], depth)
        if slot is None:
            return
        item.samples = item.samples and num_tokens == item.num_tokens
        item.num_tokens = num_tokens
        moves.kept[item.request] = slot
        course.depth = depth

    def _keep_decoded(self, item: ScheduledRequest, course: Course, moves: Moves) -> None:
        depth, rest = divmod(item.start + 1, self._size)
        if rest or depth - course.depth < DECODED:
            return
        if course.decoded is not None:
            self._checkpoints.drop(course.decoded)
        block = item.block_table[depth - 1]
        slot = self._checkpoints.save(item.request, block, depth)
        if slot is None:
            course.missed = depth
            return
        moves.kept[item.request] = slot
        course.depth, course.decoded = depth, block

    def most_drafts(self, item: ScheduledRequest) -> int:
        """How many drafts may stand behind the single token of a share that has passed `extend`, for the
        request to stop where its next state is to be kept. None in the step that keeps it: that copies
        before it is known which drafts are right."""
        course, end = self._courses[item.request], item.start + 1
        if course.depth * self._size == end:
            return 0
        due = max(max(course.depth, course.missed) + DECODED, end // self._size + 1)
        return due * self._size - 1 - end
