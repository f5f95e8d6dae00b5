"""Task 3.6: room for the tokens of a request, what has to go for that, and what must be copied."""

from types import ModuleType

from grader.kit import expect, expect_equal, quietly, run_machine, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.table_machine import RoomMachine
from yaie.core.request import Request

A = list(range(1, 21))
B = list(range(21, 41))

NOTHING = "The scheduler goes on as if it had never asked: no block taken, none evicted."
EVICT_LITTLE = (
    "Every cached block is a prefix that the next request may have: evict only what is missing."
)
COPY = "A block that another one reads is copied before this request writes to it."


@task("3.6")
def test_allocate_adds_only_what_is_missing(part: ModuleType) -> None:
    """allocate makes room for the first num_tokens tokens: whole blocks, and only those that lack."""
    desk = CacheDesk(part)
    request = desk.admit(A[:13])
    why = "num_tokens counts from the start of the sequence; a block that is begun is needed whole."
    for num_tokens, blocks in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (7, 3), (13, 4)):
        expect(desk.cache.allocate(request, num_tokens), f"no room for {num_tokens} tokens of 32")
        what = f"blocks after room for {num_tokens} tokens was made"
        expect_equal(len(desk.table(request)), blocks, what, why=why)
    desk.check()


@task("3.6")
def test_without_room_nothing_changes(part: ModuleType) -> None:
    """allocate that cannot have all it needs returns False and leaves everything as it is."""
    desk = CacheDesk(part)
    desk.file(A[:8])
    request = desk.admit(B[:16])
    desk.cache.allocate(request, 16)
    before = desk.holdings()
    got = desk.cache.allocate(request, 36)
    expect_equal(
        got, False, "what allocate returned with 4 blocks to be had and 5 needed", why=NOTHING
    )
    desk.expect_unchanged(before, "allocate had returned False", NOTHING)
    why = "Of the 4 blocks 2 are cached and not in use: they are room as well, to the last one."
    got = desk.cache.allocate(request, 32)
    expect_equal(got, True, "what allocate returned for exactly all of it", why=why)
    desk.check()


@task("3.6")
def test_keep_free_is_kept(part: ModuleType) -> None:
    """allocate leaves keep_free blocks free or evictable, or returns False and changes nothing."""
    desk = CacheDesk(part)
    desk.file(A[:16])
    request = desk.admit(B[:12])
    why = "The watermark leaves room for those that run already; cached blocks count as room."
    got = desk.cache.allocate(request, 12, keep_free=6)
    expect_equal(got, False, "3 blocks of 8 that may be had, with 6 to be kept", why=why)
    expect_equal(
        desk.table(request), [], "the table after allocate had returned False", why=NOTHING
    )
    got = desk.cache.allocate(request, 12, keep_free=5)
    expect_equal(got, True, "3 blocks of 8 that may be had, with 5 to be kept", why=why)
    expect_equal(desk.cache.stats()["evicted_blocks"], 0, "evicted blocks", why=EVICT_LITTLE)


@task("3.6")
def test_who_needs_no_block_is_never_refused(part: ModuleType) -> None:
    """allocate that needs no further block answers True, however many keep_free asks to keep."""
    desk = CacheDesk(part, num_blocks=2)
    request = desk.admit(A[:8])
    expect(desk.cache.allocate(request, 5), "no room in an empty pool")
    got = desk.cache.allocate(request, 8, keep_free=1)
    why = (
        "keep_free is a condition for taking a block. Its last block has rows left: it takes none."
    )
    expect_equal(got, True, "room for 8 tokens in the 2 blocks that it has", why=why)


@task("3.6")
def test_pressure_evicts_what_is_missing(part: ModuleType) -> None:
    """Evicted blocks are given back and handed out again; no more go than are missing."""
    for num_tokens, evicted in ((16, 1), (20, 2)):
        desk = CacheDesk(part)
        desk.file(A)  # 5 blocks of 8
        request = desk.admit(B)
        expect(desk.cache.allocate(request, num_tokens), "no room although 8 blocks may be had")
        expect_equal(len(desk.table(request)), num_tokens // 4, "blocks in the table")
        assert desk.tree is not None
        gone = 5 - desk.tree.num_blocks
        expect_equal(gone, evicted, "how many blocks the tree has lost", why=EVICT_LITTLE)
        expect_equal(
            desk.cache.stats()["evicted_blocks"], gone, "evicted_blocks of stats()",
            why="stats() reports `_evicted`: count there each block that the tree gives up.",
        )  # fmt: skip
        desk.check()
        got = quietly(desk.cache).cached_tokens(desk.request([*A, 0]))
        expect_equal(got, 20 - 4 * evicted, "cached tokens left", why=EVICT_LITTLE)


@task("3.6")
def test_a_prefix_in_use_is_no_room(part: ModuleType) -> None:
    """Blocks that a request reads are neither counted as room nor evicted."""
    desk = CacheDesk(part)
    desk.file(A[:16])
    user, greedy = desk.admit(A[:10]), desk.admit(B)
    why = "Room is what is free or evictable: `num_available_blocks`. What is locked is neither."
    for num_tokens, fits in ((28, False), (24, True)):
        got = desk.cache.allocate(greedy, num_tokens)
        expect_equal(got, fits, f"room for {num_tokens} tokens with 2 of 8 blocks in use", why=why)
    desk.check(why)
    expect_equal(desk.wrong_slots(user), "", "what the user of the prefix reads", why=why)


@task("3.6")
def test_without_a_tree_free_blocks_are_the_room(part: ModuleType) -> None:
    """Given no tree, allocate makes room in what is free, and refuses when that is not enough."""
    desk = CacheDesk(part, caching=False)
    expect(desk.compute(desk.admit(A[:8])), "no room in an empty pool")
    again = desk.admit(A[:9])
    expect_equal(desk.cache.allocate(again, 28), False, "room for 7 blocks with 6 free")
    expect_equal(desk.cache.allocate(again, 24), True, "room for 6 blocks with 6 free")
    desk.check()


def beside_a_reader(part: ModuleType, num_blocks: int = 8) -> tuple[CacheDesk, Request]:
    """A request with 6 tokens computed, whose second block another one reads, half full."""
    desk = CacheDesk(part, num_blocks)
    request = desk.admit(A[:6])
    expect(desk.compute(request), "no room in an empty pool")
    desk.read_along(desk.table(request)[1])
    return desk, request


@task("3.6")
def test_a_block_that_others_read_is_copied_before_it_is_written(part: ModuleType) -> None:
    """Making room for the next token copies the block where it goes if others hold it, and only that."""
    desk, request = beside_a_reader(part)
    before = desk.table(request)
    expect(desk.cache.allocate(request, 7), "no room for a copy in a pool with free blocks")
    _, _, copies = desk.carry_out()
    table = desk.table(request)
    written = (
        f"the next token would go into block {before[1]}, which reader0 has, too: no copy was made"
    )
    expect(table[1] != before[1], written, why=COPY)
    what = "copies that take_moves hands over"
    expect_equal(copies, [(before[1], table[1])], what, why=f"{COPY} The pair says from where.")
    expect_equal(table[0], before[0], "the block before it, which is full", why=COPY)
    desk.write(request, 1)
    desk.check(COPY)


@task("3.6")
def test_a_block_behind_what_is_in_flight_is_copied(part: ModuleType) -> None:
    """The block that is written next is the one behind all computed tokens, those in flight included."""
    desk = CacheDesk(part)
    request = desk.admit(A[:9])
    expect(desk.launch(request, 6), "no room in an empty pool")
    before = desk.table(request)
    desk.read_along(before[1])
    expect(desk.cache.allocate(request, 7), "no room for a copy in a pool with free blocks")
    written = desk.table(request)[1]
    problem = "r0 would write token 6 into the block that another one reads"
    why = f"{COPY} Tokens in flight are written already: count from num_computed_tokens."
    expect(written != before[1], problem, why=why)


@task("3.6")
def test_who_reads_last_needs_no_copy(part: ModuleType) -> None:
    """Once no other reads the block, the next token goes there without a copy."""
    desk, request = beside_a_reader(part)
    before = desk.table(request)
    desk.stop_reading()
    expect(desk.compute(request), "no room in a pool with free blocks")
    why = "The question is whether anything else refers to the block now: ask for its count."
    expect_equal(desk.table(request), before, "the table after the next token", why=why)
    desk.check(why)


@task("3.6")
def test_only_the_block_that_is_written_is_copied(part: ModuleType) -> None:
    """A full block that others read stays shared: it is not written again."""
    desk = CacheDesk(part)
    request = desk.admit(A[:8])
    desk.compute(request)
    table = desk.table(request)
    desk.read_along(table[1])
    expect(desk.compute(request), "no room in a pool with free blocks")
    why = "The next token is number 8 and goes to entry 8 // 4 = 2. Entry 1 is full."
    expect_equal(desk.table(request)[:2], table, "the two full blocks of the table", why=why)
    desk.check(why)


@task("3.6")
def test_a_copy_needs_a_block_like_any_other(part: ModuleType) -> None:
    """Without a free block for the copy, or the copy and the rest, allocate returns False."""
    desk, request = beside_a_reader(part, num_blocks=3)
    why = (
        "Count the copy with the blocks that are missing, keep_free too, before anything is taken."
    )
    before = desk.holdings()
    got = desk.cache.allocate(request, 7, keep_free=1)
    expect_equal(got, False, "room for a copy when 1 block is free and 1 is to be kept", why=why)
    got = desk.cache.allocate(request, 9)
    expect_equal(got, False, "room for a copy and one more block when 1 is free", why=why)
    desk.expect_unchanged(before, "allocate had returned False", why)
    expect_equal(desk.cache.allocate(request, 7), True, "room for the copy alone", why=why)


@task("3.6")
def test_a_longer_table_has_no_block_to_spare(part: ModuleType) -> None:
    """A table that drafts made longer needs a block for its copy all the same."""
    desk, request = beside_a_reader(part)
    expect(desk.cache.allocate(request, 17), "no room for 3 more blocks and a copy in 8")
    desk.carry_out()
    desk.read_along(desk.table(request)[1])
    why = "The table has more blocks than 7 tokens need: then none is missing, not less than none."
    for num_tokens, keep_free in ((7, 0), (7, 8)):
        got = desk.cache.allocate(request, num_tokens, keep_free=keep_free)
        expect_equal(got, True, f"room for 7 tokens with keep_free={keep_free}", why=why)
        desk.carry_out()
        written = desk.table(request)[1]
        expect_equal(desk.refs([written]), [1], "references to the block that is written", why=why)


@task("3.6")
def test_each_copy_of_a_step_is_promised(part: ModuleType) -> None:
    """take_moves hands over the copies of all requests that got room since the last call."""
    desk, request = beside_a_reader(part)
    other = desk.admit(B[:3])
    expect(desk.compute(other), "no room in a pool with free blocks")
    desk.read_along(desk.table(other)[0])
    for each in (request, other):
        expect(desk.cache.allocate(each, each.num_tokens), "no room in a pool with free blocks")
    why = "Several requests may need a copy in one step: add to the third list of `_moves`."
    copies = [fresh for _, fresh in desk.carry_out()[2]]
    written = [desk.table(request)[1], desk.table(other)[0]]
    expect_equal(copies, written, "the blocks that are copied to", why=why)


@task("3.6")
def test_a_copy_takes_a_cached_block_if_none_is_free(part: ModuleType) -> None:
    """A copy evicts a cached block like any other block that is missing."""
    desk, request = beside_a_reader(part, num_blocks=3)
    desk.file(B[:4])
    got = desk.cache.allocate(request, 7)
    expect_equal(got, True, "room for a copy when 1 block of 3 is cached and not in use", why=COPY)
    desk.carry_out()
    desk.check(COPY)


@task("3.6")
def test_any_script_of_allocations_in_the_cache(part: ModuleType) -> None:
    """After any admissions and allocations every table leads to its tokens, and nothing leaks."""
    run_machine(RoomMachine, part, runs=45, steps=12)
