"""Task 22.5: which states are kept after which blocks, and which give way."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from grader.kit import (
    Machine,
    Mismatch,
    expect,
    expect_equal,
    expect_raises,
    note,
    quietly,
    run_machine,
    task,
)
from grader.kit.growth import expect_growth
from grader.kit.storage import expect_nothing_is_kept
from grader.suites.state_cache.desk import FIRST, Plain, keep, make, running
from yaie.core.request import RequestStatus

DEEPEST = (
    "Keys and values of all these blocks are there, and a state after some of them alone. A request "
    "goes on from the last of those: blocks after it are computed again, as their tokens are missing "
    "in that state."
)
USED = "What was used last is most likely to be used again: use makes it the last to go."
OLDEST = "If no slot is free, the least recently used of the tree's states gives way."
HALF = (
    "States of running requests hold half of the slots at most, count // 2: the tree would lose all "
    "that it has to requests that may never file anything."
)
AGAIN = "What was pending after this block is dropped first, and its slot is free."
KEPT = (
    "The tree keeps the blocks that it had: path[i], where mine[i] has the same tokens. The state is "
    "found by the block in the tree."
)
PLACE = (
    "A block's number is used again: at another depth it is another prefix, and not what was saved."
)
LOST = (
    "A state that finds one filed where it is to go is given up: the one there has not been used."
)
THERE = "One state after a block is enough: the slot of the other is free again."
OVER = (
    "A request that has ended, or was preempted, files no block of that time. `Life.is_over` says so; "
    "what belongs to it is free again."
)
GONE = "A state is found by its block. Without the block it is lost, and its slot is free."
SEARCH = "A dict finds a block at once, and an OrderedDict knows which was used longest ago."


def slots_left(checkpoints: Any, count: int) -> list[int]:
    """All slots that can be had, taken one by one and filed: none may be had twice before others."""
    found = []
    for block in range(500, 500 + count):
        slot = keep(checkpoints, running(f"r{block}"), block)
        found.append(slot)
    return found


@task("22.5")
def test_a_match_goes_back_to_the_last_state(part: ModuleType) -> None:
    """Blocks with a state after the second and the fourth: a match of six is one of four."""
    checkpoints = make(part, 8)
    expect_equal(checkpoints.depth([1, 2, 3]), 0, "depth where nothing is kept", why=DEEPEST)
    keep(checkpoints, running("a"), 12, 2)
    keep(checkpoints, running("a"), 14, 4)
    blocks = [11, 12, 13, 14, 15, 16]
    for length, right in ((6, 4), (4, 4), (3, 2), (2, 2), (1, 0), (0, 0)):
        got = checkpoints.depth(blocks[:length])
        expect_equal(got, right, f"depth of a match of {length} blocks", why=DEEPEST)
    checkpoints.save(running("b"), 16, 6)
    expect_equal(
        checkpoints.depth(blocks), 4, "depth where the state after block 16 is pending",
        why="A pending state is not in the tree: its request's step may not have been computed.",
    )  # fmt: skip


@task("22.5")
def test_slots_are_handed_out_once(part: ModuleType) -> None:
    """Slots first to first + count - 1, each for one state; `use` says which."""
    checkpoints = make(part, 6)
    slots = {block: keep(checkpoints, running("a"), block) for block in range(20, 26)}
    right = list(range(FIRST, FIRST + 6))
    expect_equal(sorted(slots.values()), right, "the slots of six states", why=OLDEST)
    for block, slot in slots.items():
        expect_equal(checkpoints.use(block), slot, f"the slot of the state after block {block}")
    with expect_raises(KeyError, "use of a block without a state"):
        checkpoints.use(99)


@task("22.5")
def test_the_least_recently_used_gives_way(part: ModuleType) -> None:
    """Being filed and `use` are uses."""
    checkpoints = make(part, 4)
    slots = {block: keep(checkpoints, running("a"), block) for block in (10, 11, 12, 13)}
    checkpoints.use(10)
    got = keep(checkpoints, running("b"), 14)
    expect_equal(got, slots[11], "the slot of a fifth state", why=f"{OLDEST} {USED}")
    expect_equal(sorted(checkpoints.filed), [10, 12, 13, 14], "what is kept then", why=USED)
    got = keep(checkpoints, running("b"), 15)
    expect_equal(got, slots[12], "the slot of a sixth", why=OLDEST)


@task("22.5")
def test_running_requests_have_half_of_all(part: ModuleType) -> None:
    """With four slots two states may be pending, and a third gets None."""
    checkpoints = make(part, 4)
    keep(checkpoints, running("a"), 10)
    for block in (20, 21):
        expect(
            checkpoints.save(running("b"), block, 1) is not None, "no slot for a second", why=HALF
        )
    expect_equal(checkpoints.save(running("b"), 22, 1), None, "a third pending state", why=HALF)
    expect_equal(list(checkpoints.filed), [10], "what is kept in the tree", why=HALF)
    expect_equal(checkpoints.num_pending, 2, "pending states")
    expect_equal(
        make(part, 1).save(running("c"), 5, 1), None, "of one slot, a pending state", why=HALF
    )
    expect_equal(make(part, 0).save(running("c"), 5, 1), None, "of no slot, a state", why=HALF)


@task("22.5")
def test_saved_again_is_saved_once(part: ModuleType) -> None:
    """A second state after the same block takes the place of the first, and no slot is lost."""
    checkpoints = make(part, 2)
    request = running("a")
    for _ in range(3):
        expect(checkpoints.save(request, 7, 1) is not None, "no slot for the same block", why=AGAIN)
        expect_equal(checkpoints.num_pending, 1, "pending states", why=AGAIN)
    checkpoints.drop(7)
    slots = slots_left(checkpoints, 2)
    expect_equal(sorted(slots), [FIRST, FIRST + 1], "the slots that are left", why=AGAIN)


@task("22.5")
def test_a_state_is_filed_behind_the_block_of_the_tree(part: ModuleType) -> None:
    """At the depth that it was saved at, and only if there is none yet."""
    checkpoints = make(part, 6)
    slot = checkpoints.save(running("a"), 11, 2)
    checkpoints.file([10, 11], [20, 21])
    expect_equal(list(checkpoints.filed), [21], "blocks with a state", why=KEPT)
    expect_equal(checkpoints.use(21), slot, "the slot of the state after block 21", why=KEPT)
    checkpoints.save(running("b"), 31, 2)
    checkpoints.file([31, 32], [31, 32])
    expect_equal(list(checkpoints.filed), [21], "blocks with a state, saved at depth 2", why=PLACE)
    expect_equal(checkpoints.num_pending, 1, "pending states", why=PLACE)
    checkpoints.file([30, 31], [20, 21])
    expect_equal(
        list(checkpoints.filed), [21], "blocks with a state, filed a second time", why=THERE
    )
    expect_equal(checkpoints.use(21), slot, "the slot of the state after block 21 then", why=THERE)
    expect_equal(checkpoints.num_pending, 0, "pending states then", why=THERE)
    slots = [slot, *slots_left(checkpoints, 5)]
    expect_equal(sorted(slots), list(range(FIRST, FIRST + 6)), "all slots, filled up", why=THERE)
    checkpoints.save(running("c"), 40, 1)  # in the slot of block 21
    checkpoints.file([40], [500])
    keep(checkpoints, running("c"), 41)
    got = keep(checkpoints, running("c"), 42)
    expect_equal(got, slots[1], "the slot of the next state, block 500's", why=f"{OLDEST} {LOST}")


@task("22.5")
def test_what_will_not_be_filed_is_free(part: ModuleType) -> None:
    """Of requests that have ended, were preempted, or run again after that."""
    for end in ("finished", "preempted", "running again"):
        checkpoints, request, other = make(part, 4), running("a"), running("b")
        checkpoints.save(request, 10, 1)
        checkpoints.save(other, 11, 1)
        note(f"# request a is {end}")
        if end == "running again":
            request.num_preemptions += 1
        else:
            request.status = RequestStatus[end.upper()]
        checkpoints.sweep()
        expect_equal(checkpoints.num_pending, 1, f"pending states, request a {end}", why=OVER)
        checkpoints.file([10], [10])
        expect_equal(list(checkpoints.filed), [], "what a files later", why=OVER)
        checkpoints.file([11], [11])
        expect_equal(list(checkpoints.filed), [11], "what b files", why="b still runs.")
        slots = [checkpoints.use(11), *slots_left(checkpoints, 3)]
        expect_equal(sorted(slots), list(range(FIRST, FIRST + 4)), "all slots", why=OVER)


@task("22.5")
def test_a_state_goes_with_its_block(part: ModuleType) -> None:
    """Blocks that are evicted take their states with them; others stay."""
    checkpoints = make(part, 4)
    for block in (10, 11, 12):
        keep(checkpoints, running("a"), block)
    checkpoints.evicted([9, 11, 40])
    expect_equal(sorted(checkpoints.filed), [10, 12], "what is kept without block 11", why=GONE)
    expect_equal(checkpoints.depth([10, 11]), 1, "depth of blocks 10 and 11", why=GONE)
    slots = [checkpoints.use(10), checkpoints.use(12), *slots_left(checkpoints, 2)]
    if sorted(slots) != list(range(FIRST, FIRST + 4)):
        raise Mismatch(
            "the slots of two more states, saved after block 11 was evicted",
            f"{FIRST + 1}, which block 11 had, and {FIRST + 3}",
            " and ".join(map(str, slots[2:])),
            GONE,
        )
    expect_equal(len(checkpoints.filed), 4, "states that are kept then", why=GONE)


class Script(Machine):
    """Any calls, beside the plain model."""

    grades = frozenset({"22.5"})

    def __init__(self) -> None:
        super().__init__()
        self.count = 5
        self.kept = make(self.part, self.count)
        self.plain = Plain(self.count)
        self.requests = [running(name) for name in "abc"]

    @rule(who=st.integers(0, 2), block=st.integers(1, 9), depth=st.integers(1, 3))
    def save(self, who: int, block: int, depth: int) -> None:
        if block in self.plain.slot or self.requests[who].status is not RequestStatus.RUNNING:
            return
        may = self.plain.may_save(block)
        slot = self.kept.save(self.requests[who], block, depth)
        self.claim("22.5", slot is not None, may, "whether there is a slot", HALF)
        if slot is None:
            self.plain.drop(block)
        else:
            self.plain.save(self.requests[who], block, depth, slot)
            self.claim("22.5", len(self.plain.taken()), len(self.plain.slot) + len(self.plain.pending),
                       "different slots in use", "Each state has a slot of its own.")  # fmt: skip
            self.claim("22.5", FIRST <= slot < FIRST + self.count, True, "a slot of these", "")
        self.look()

    @rule(
        mine=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True), shift=st.booleans()
    )
    def file(self, mine: list[int], shift: bool) -> None:
        path = [block + 10 for block in mine] if shift else mine
        self.kept.file(mine, path)
        self.plain.file(mine, path)
        self.look()

    @rule(who=st.integers(0, 2), what=st.sampled_from(["end", "preempt", "admit"]))
    def change(self, who: int, what: str) -> None:
        request = self.requests[who]
        note(f"# {request.request_id}: {what}")
        if what == "admit":
            request.status = RequestStatus.RUNNING
            return
        request.num_preemptions += 1
        request.status = RequestStatus.FINISHED if what == "end" else RequestStatus.PREEMPTED
        self.kept.sweep()
        self.plain.sweep()
        self.look()

    @rule(blocks=st.lists(st.integers(1, 19), max_size=3, unique=True))
    def evicted(self, blocks: list[int]) -> None:
        self.kept.evicted(blocks)
        self.plain.evicted(blocks)
        self.look()

    @rule(block=st.integers(1, 19))
    def use(self, block: int) -> None:
        if block in self.plain.slot:
            self.claim("22.5", self.kept.use(block), self.plain.slot[block], "its slot", KEPT)
            self.plain.use(block)

    @rule(blocks=st.lists(st.integers(1, 19), max_size=5, unique=True))
    def depth(self, blocks: list[int]) -> None:
        got = self.kept.depth(blocks)
        self.claim("22.5", got, self.plain.depth(blocks), f"depth of {blocks}", DEEPEST)

    def look(self) -> None:
        kept = quietly(self.kept)
        self.claim(
            "22.5", sorted(kept.filed), sorted(self.plain.slot), "blocks with a state", OLDEST
        )
        self.claim("22.5", kept.num_pending, len(self.plain.pending), "pending states", OVER)


@task("22.5")
def test_any_script_of_checkpoints(part: ModuleType) -> None:
    """Whatever is saved, filed, used, evicted and over: each slot is free, or holds one state."""
    run_machine(Script, part, runs=60, steps=25)


@task("22.5")
def test_no_call_searches_what_is_kept(part: ModuleType) -> None:
    """No call takes longer the more states are kept, and none leaves anything behind."""

    def filled(size: int) -> Any:
        kept = part.Checkpoints(FIRST, size)
        for block in range(size):
            kept.save(running("a"), block, 1)
            kept.file([block], [block])
        return kept

    def of(call: Callable[[Any, int], Any]) -> Callable[[int], Callable[[], Any]]:
        def prepare(size: int) -> Callable[[], Any]:
            kept = filled(size)
            return lambda: call(kept, size)

        return prepare

    request = running("b")
    calls: dict[str, Callable[[Any, int], Any]] = {
        "depth": lambda kept, size: kept.depth([size // 2, 10**6]),
        "use": lambda kept, size: kept.use(size // 2),
        "save": lambda kept, size: kept.save(request, 10**6, 1),
        "evicted": lambda kept, size: kept.evicted([size // 2]),
        "sweep": lambda kept, size: kept.sweep(),
    }
    for name, call in calls.items():
        expect_growth(part, name, "states", of(call), size=32, memory=False, why=SEARCH)

    def file(size: int) -> Callable[[], Any]:
        kept = filled(size)
        kept.save(request, 10**6, 1)
        return lambda: kept.file([10**6], [10**6])

    expect_growth(part, "file", "states", file, size=32, memory=False, why=SEARCH)

    def save_in_free(size: int) -> Callable[[], Any]:
        kept = part.Checkpoints(FIRST, size)
        return lambda: kept.save(request, 10**6, 1)

    expect_growth(part, "save", "free slots", save_in_free, size=32, memory=False, why=SEARCH)
    expect_thousands(part)
    kept = filled(8)

    def save_and_drop() -> None:
        kept.save(request, 900, 1)
        kept.drop(900)

    def file_and_evict() -> None:
        kept.save(request, 900, 1)
        kept.file([900], [900])
        kept.evicted([900])

    expect_nothing_is_kept(
        {
            "depth": lambda: kept.depth([7, 901]),
            "use": lambda: kept.use(next(iter(kept.filed))),
            "sweep": kept.sweep,
            "save and drop": save_and_drop,
            "save, file and evicted": file_and_evict,
            "cut_share": lambda: part.cut_share(0, 41, 4, [5, 10], None),
        }
    )


def expect_thousands(part: ModuleType) -> None:
    """A text of 1,200 blocks with a state after each, all filed at once, evicted at once; and so many
    that are over."""
    count, request = 1200, running("long")
    kept, blocks = part.Checkpoints(FIRST, 2 * count), list(range(5000, 5000 + count))
    note("# 1,200 states of one request are pending, and are filed by one call, or over")
    for depth, block in enumerate(blocks, 1):
        kept.save(request, block, depth)
    kept.file(blocks, blocks)
    expect_equal(len(kept.filed), count, "states that were filed", why=KEPT)
    kept.evicted(blocks)
    expect_equal(len(kept.filed), 0, "states whose blocks were evicted", why=GONE)
    for depth, block in enumerate(blocks, 1):
        kept.save(request, block, depth)
    request.status = RequestStatus.FINISHED
    kept.sweep()
    expect_equal(kept.num_pending, 0, "pending states of a request that has ended", why=OVER)
