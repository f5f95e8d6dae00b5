"""Tasks 3.1 and 3.2: which table has which block."""

from types import ModuleType

from grader.kit import Mismatch, expect, expect_equal, expect_raises, run_machine, task
from grader.suites.paged_cache.block_machine import AllocateMachine, ShareMachine
from grader.suites.paged_cache.block_view import block_manager, expect_unchanged, facts, refused
from yaie.core.errors import BlockStateError, OutOfBlocksError

COUNT = "Count one reference for each table and each hold; the block is free when none is left."
NOT_YOURS = (
    "A free block has no content to share, and may be handed out to another at any moment: a caller "
    "that asks for it has lost count."
)


@task("3.1")
def test_blocks_handed_out_are_distinct(part: ModuleType) -> None:
    """Every block that is handed out was free, and has one owner."""
    blocks = block_manager(part)
    given = list(blocks.allocate("a", 5)) + list(blocks.allocate("b", 3))
    expect_equal(
        sorted(given), list(range(8)), "the blocks handed out, sorted",
        why="Two requests that are given the same block overwrite each other's K and V.",
    )  # fmt: skip
    expect_equal(blocks.num_free, 0, "num_free with all blocks handed out")


@task("3.1")
def test_allocate_appends_to_the_table(part: ModuleType) -> None:
    """A table grows at its end: the order of its blocks is the order of the tokens."""
    blocks = block_manager(part)
    first = list(blocks.allocate("a", 2))
    table = blocks.get_physical_blocks("a")
    expect(
        blocks.get_physical_blocks("a") is table,
        "get_physical_blocks made another list of a table that has not changed",
        why="Hand out the table, not a copy: a reader sees by the list object that it is the same.",
    )
    second = list(blocks.allocate("a", 1))
    why = "Entry i of the table holds tokens [i * block_size, (i + 1) * block_size)."
    expect_equal(list(blocks.get_physical_blocks("a")), first + second, "the table of a", why=why)
    expect(
        blocks.get_physical_blocks("a") is table,
        "allocate made a new list for a table that only grew",
        why="A reader that copied the table sees by the list object that it only got longer.",
    )


@task("3.1")
def test_who_has_no_table_has_an_empty_one(part: ModuleType) -> None:
    """An unknown request has an empty table, and looking at it does not make one."""
    blocks = block_manager(part)
    expect_equal(list(blocks.get_physical_blocks("a")), [], "the table of an unknown request")
    why = LOOKED if refuses_strangers(part) else FREED
    with refused(blocks, BlockStateError, "freeing a request that was only looked at", why):
        blocks.free("a")


def refuses_strangers(part: ModuleType) -> bool:
    """Whether free raises BlockStateError for a request that was never mentioned."""
    try:
        part.BlockManager(8, 4).free("a")
    except BlockStateError:
        return True
    except Exception:  # noqa: BLE001, a part may raise anything
        return False
    return False


LOOKED = (
    "Without the look, free of this request raises BlockStateError: the look has made a table. A look "
    "changes nothing."
)
FREED = "A table is freed once by its owner; a second time means that the caller has lost count."


@task("3.1")
def test_freed_blocks_can_be_had_again(part: ModuleType) -> None:
    """What a request frees, the next one gets: nothing leaks."""
    blocks = block_manager(part, num_blocks=3)
    for _ in range(3):
        blocks.allocate("a", 3)
        blocks.free("a")
        expect_equal(blocks.num_free, 3, "num_free after everything was freed", why=COUNT)
    expect_equal(list(blocks.get_physical_blocks("a")), [], "the table of a after free")


@task("3.1")
def test_allocation_is_all_or_nothing(part: ModuleType) -> None:
    """A request that asks for more than is free gets nothing, and OutOfBlocksError."""
    blocks = block_manager(part, num_blocks=4)
    blocks.allocate("a", 2)
    why = "Half of what was asked for is no help, and others could have used it: take all or none."
    with refused(blocks, OutOfBlocksError, "allocating 3 blocks when 2 are free", why):
        blocks.allocate("a", 3)
    with refused(blocks, OutOfBlocksError, "allocating 3 blocks for a new request", why):
        blocks.allocate("b", 3)
    with expect_raises(BlockStateError, "freeing a request that was refused its blocks", why=why):
        blocks.free("b")
    blocks.allocate("a", 2)
    expect_equal(blocks.num_free, 0, "num_free after the last two were allocated", why=why)


@task("3.1")
def test_freeing_twice_is_refused(part: ModuleType) -> None:
    """A second free of the same table raises BlockStateError and changes nothing."""
    blocks = block_manager(part)
    blocks.allocate("a", 2)
    blocks.free("a")
    with refused(blocks, BlockStateError, "freeing a table twice", FREED):
        blocks.free("a")


@task("3.1")
def test_any_script_of_allocations(part: ModuleType) -> None:
    """After any calls of allocate and free, every block is free or in one table, never both."""
    run_machine(AllocateMachine, part, runs=60, steps=15)


@task("3.2")
def test_a_shared_block_is_free_after_its_last_holder(part: ModuleType) -> None:
    """A block that two tables and a hold share is free when all three are gone."""
    blocks = block_manager(part)
    shared = list(blocks.allocate("a", 2))
    blocks.share("b", shared)
    blocks.hold(shared)
    counts = [blocks.ref_count(block) for block in shared]
    expect_equal(counts, [3, 3], "references of the shared blocks", why=COUNT)
    for key, left in (("a", 2), ("b", 1)):
        blocks.free(key)
        counts = [blocks.ref_count(block) for block in shared]
        why = f"free takes {key}'s own reference from each block, and from no other holder."
        expect_equal(
            counts, [left] * 2, f"references of the shared blocks after free('{key}')", why=why
        )
    expect_equal(blocks.num_free, 6, "num_free while the blocks are still held", why=COUNT)
    blocks.release(shared)
    expect_equal(blocks.num_free, 8, "num_free after the last reference is gone", why=COUNT)


@task("3.2")
def test_share_appends_to_the_table(part: ModuleType) -> None:
    """Shared blocks go to the end of the table; whose they were keeps its own."""
    blocks = block_manager(part)
    theirs = list(blocks.allocate("a", 2))
    mine = list(blocks.allocate("b", 1))
    table = blocks.get_physical_blocks("b")
    blocks.share("b", theirs)
    expect_equal(list(blocks.get_physical_blocks("b")), mine + theirs, "the table of b")
    expect(
        blocks.get_physical_blocks("b") is table,
        "share made a new list for a table that only grew",
        why="A reader that copied the table sees by the list object that it only got longer.",
    )
    expect_equal(list(blocks.get_physical_blocks("a")), theirs, "the table of a, which shared")


@task("3.2")
def test_sharing_no_block_makes_a_table(part: ModuleType) -> None:
    """A request that shares no block has a table all the same, an empty one, and can be freed."""
    blocks = block_manager(part)
    blocks.share("a", [])
    why = (
        "A request that finds nothing cached shares nothing, and may end before it gets a block: its "
        "table is empty, not missing."
    )
    ended = "no error"
    try:
        blocks.free("a")
    except BlockStateError:
        ended = "BlockStateError"
    expect_equal(ended, "no error", "how free of an empty table ends", why=why)


@task("3.2")
def test_a_block_named_twice_is_held_twice(part: ModuleType) -> None:
    """hold counts a block as often as its call names it, and release may give back as many."""
    blocks = block_manager(part)
    (block,) = blocks.allocate("a", 1)
    blocks.hold([block, block])
    why = "Each entry of block_ids is one reference and one hold: go through the list, not a set."
    expect_equal(blocks.ref_count(block), 3, "references: one of the table, two holds", why=why)
    if not takes_back_one(part):
        why = "A release gives back one hold of each block that it names, and leaves the others."
    for left in (2, 1):
        try:
            blocks.release([block])
        except BlockStateError as error:
            problem = "a hold of a block that was named twice cannot be released twice"
            raise Mismatch(f"{problem}: BlockStateError: {error}", why=why) from error
        expect_equal(blocks.ref_count(block), left, "references after a release", why=why)


def takes_back_one(part: ModuleType) -> bool:
    """Whether two calls of hold can be given back by two of release."""
    blocks = part.BlockManager(8, 4)
    try:
        held = list(blocks.allocate("a", 1))
        for call in (blocks.hold, blocks.hold, blocks.release, blocks.release):
            call(held)
    except BlockStateError:
        return False
    return True


@task("3.2")
def test_free_blocks_are_not_shared_or_held(part: ModuleType) -> None:
    """Sharing or holding a block that is free raises BlockStateError, even beside one that is not."""
    blocks = block_manager(part)
    (block,) = blocks.allocate("a", 1)
    free = next(b for b in range(8) if b != block)
    with refused(blocks, BlockStateError, "sharing a block that was never allocated", NOT_YOURS):
        blocks.share("b", [block, free])
    with refused(blocks, BlockStateError, "holding a block that was never allocated", NOT_YOURS):
        blocks.hold([block, free])


@task("3.2")
def test_only_what_is_held_is_released(part: ModuleType) -> None:
    """release gives back what hold took, and never a table's reference."""
    blocks = block_manager(part)
    first, second = blocks.allocate("a", 2)
    blocks.hold([first])
    why = (
        "The reference of a table is given back by free. Releasing it would free the block under a "
        "request that reads it."
    )
    with refused(blocks, BlockStateError, "releasing a block that only a table has", why):
        blocks.release([first, second])
    with refused(blocks, BlockStateError, "releasing one hold twice in a call", why):
        blocks.release([first, first])
    blocks.release([first])
    with refused(blocks, BlockStateError, "releasing one hold a second time", why):
        blocks.release([first])


@task("3.2")
def test_holds_are_given_back_one_by_one(part: ModuleType) -> None:
    """A block that is held twice is free after the second release, not after the first."""
    blocks = block_manager(part)
    held = list(blocks.allocate("a", 1))
    blocks.hold(held)
    blocks.hold(held)
    blocks.free("a")
    why = f"Two calls of hold take two references, and each release gives back one. {COUNT}"
    blocks.release(held)
    expect_equal(blocks.num_free, 7, "num_free after one of two holds is released", why=why)
    try:
        blocks.release(held)
    except BlockStateError as error:
        raise Mismatch("the second of two holds cannot be released", why=why) from error
    expect_equal(blocks.num_free, 8, "num_free after both holds are released", why=why)


@task("3.2")
def test_replace_drops_the_old_references(part: ModuleType) -> None:
    """replace points a table at other blocks; what it pointed at before is given back."""
    blocks = block_manager(part)
    mine = list(blocks.allocate("a", 4))
    theirs = list(blocks.allocate("b", 2))
    before = blocks.get_physical_blocks("a")
    blocks.replace("a", 1, theirs)
    table = blocks.get_physical_blocks("a")
    why = "As many entries go as there are new blocks, from the index on; those around them stay."
    expect_equal(list(table), [mine[0], *theirs, mine[3]], "the table of a", why=why)
    why = "Each new entry is one more reference, each old one a reference less."
    counts = [blocks.ref_count(block) for block in (*mine, *theirs)]
    expect_equal(counts, [1, 0, 0, 1, 2, 2], "references to a's old blocks and to b's", why=why)
    why = "A reader that copied the old table must see that it is another one: make a new list."
    expect(table is not before, "replace changed the list it had handed out", why=why)
    expect_equal(list(before), mine, "the list that was handed out before", why=why)


@task("3.2")
def test_replacing_a_block_by_itself_keeps_it(part: ModuleType) -> None:
    """The new references are taken before the old ones are dropped."""
    blocks = block_manager(part)
    mine = list(blocks.allocate("a", 2))
    before = facts(blocks)
    blocks.replace("a", 0, list(mine))
    why = "Dropped first, the blocks are free for a moment, and then have nothing to share."
    expect_unchanged(blocks, before, "a table's entries were replaced by themselves", why)
    with refused(blocks, BlockStateError, "replacing an entry by a free block", NOT_YOURS):
        blocks.replace("a", 1, [next(b for b in range(8) if b not in mine)])


@task("3.2")
def test_any_script_of_shares(part: ModuleType) -> None:
    """After any calls, a block counts as many references as it has holders, and is free without."""
    run_machine(ShareMachine, part, runs=70, steps=20)
