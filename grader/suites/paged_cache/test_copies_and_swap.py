"""Task 3.3: a block of one's own before writing, and tables in the host pool."""

from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, quietly, run_machine, task
from grader.suites.paged_cache.block_machine import SwapMachine
from grader.suites.paged_cache.block_view import block_manager, refused
from yaie.core.errors import BlockStateError, OutOfBlocksError

ALONE = "No other request reads the block: writing into it does no harm."
OTHERS = "The other holders still read the old block: it stays theirs, with its content."
ROOM = "Half a table on the host is no help: see that all of it fits before anything moves."
CONTENT = "The caller copies by these pairs: a wrong partner is another token's K and V."


@task("3.3")
def test_the_only_holder_needs_no_copy(part: ModuleType) -> None:
    """copy_on_write returns None and changes nothing for the only holder of a block."""
    blocks = block_manager(part)
    before = list(blocks.allocate("a", 2))
    expect_equal(blocks.copy_on_write("a", 1), None, "what copy_on_write returned", why=ALONE)
    expect_equal(list(blocks.get_physical_blocks("a")), before, "the table of a", why=ALONE)
    expect_equal(blocks.num_free, 6, "num_free", why=ALONE)


@task("3.3")
def test_copy_on_write_leaves_others_their_block(part: ModuleType) -> None:
    """A request that would write into a shared block gets a fresh one; the others keep theirs."""
    blocks = block_manager(part)
    table = list(blocks.allocate("a", 2))
    blocks.share("b", table)
    handed_out = blocks.get_physical_blocks("b")
    pair = blocks.copy_on_write("b", 1)
    expect(pair is not None, "copy_on_write lets b write into a block that a reads", why=OTHERS)
    old, fresh = pair
    expect_equal(old, table[1], "the block to copy from")
    expect(fresh not in table, f"the fresh block {fresh} is one that was in use", why=OTHERS)
    expect_equal(list(blocks.get_physical_blocks("a")), table, "the table of a", why=OTHERS)
    expect_equal(list(blocks.get_physical_blocks("b")), [table[0], fresh], "the table of b")
    counts = [blocks.ref_count(block) for block in (*table, fresh)]
    expect_equal(counts, [2, 1, 1], "references to a's two blocks and to the fresh one", why=OTHERS)
    expect_equal(
        list(handed_out), table, "the list that was handed out before the copy",
        why="A reader that copied the old table must see that it is another one: make a new list.",
    )  # fmt: skip


@task("3.3")
def test_a_hold_counts_as_a_holder(part: ModuleType) -> None:
    """A block that the radix tree holds is shared, though it is in one table only."""
    blocks = block_manager(part)
    (block,) = blocks.allocate("a", 1)
    blocks.hold([block])
    why = "The tree promises the block's content to the next request with the same prefix."
    pair = blocks.copy_on_write("a", 0)
    expect(pair is not None, "copy_on_write lets a write into a block that is held", why=why)
    expect_equal(blocks.ref_count(block), 1, "references to the block that is still held", why=why)


@task("3.3")
def test_without_a_free_block_nothing_is_copied(part: ModuleType) -> None:
    """copy_on_write with no free block raises OutOfBlocksError and leaves the table as it is."""
    blocks = block_manager(part, num_blocks=2)
    blocks.share("b", list(blocks.allocate("a", 2)))
    why = "Find the fresh block first: a reference that was dropped before is lost."
    with refused(blocks, OutOfBlocksError, "copy_on_write without a free block", why):
        blocks.copy_on_write("b", 0)


@task("3.3")
def test_a_swap_there_and_back_keeps_the_order(part: ModuleType) -> None:
    """Entry i of the table goes to a host block, and comes back as entry i."""
    blocks = block_manager(part)
    table = list(blocks.allocate("b", 3))[::-1]  # in another order than the host's blocks
    blocks.share("a", table)
    blocks.free("b")
    out = list(blocks.swap_out("a"))
    expect_equal([device for device, _ in out], table, "the device blocks of swap_out", why=CONTENT)
    expect_equal(list(blocks.get_physical_blocks("a")), [], "the table on the device")
    expect_equal(blocks.num_swapped_blocks("a"), 3, "num_swapped_blocks")
    expect_equal((blocks.num_free, blocks.num_free_host), (8, 1), "free blocks, device and host")
    blocks.allocate("b", 2)
    entry = {host: i for i, (_, host) in enumerate(out)}
    back = {device: entry.get(host) for host, device in blocks.swap_in("a")}
    came = [back.get(block) for block in blocks.get_physical_blocks("a")]
    expect_equal(came, [0, 1, 2], "the old entries, in the order of the new table", why=CONTENT)
    expect_equal(blocks.num_swapped_blocks("a"), 0, "num_swapped_blocks once it is back")
    expect_equal((blocks.num_free, blocks.num_free_host), (3, 4), "free blocks, device and host")


@task("3.3")
def test_a_table_moves_whole_or_not_at_all(part: ModuleType) -> None:
    """swap_out onto a host pool with too little room raises OutOfBlocksError and moves nothing."""
    blocks = block_manager(part, num_host_blocks=2)
    blocks.allocate("a", 3)
    with refused(blocks, OutOfBlocksError, "swapping 3 blocks out to 2 host blocks", ROOM):
        blocks.swap_out("a")
    blocks.allocate("b", 2)
    expect_equal(len(blocks.swap_out("b")), 2, "pairs for a table that just fits", why=ROOM)


@task("3.3")
def test_without_room_a_table_stays_on_the_host(part: ModuleType) -> None:
    """swap_in with too few free device blocks raises OutOfBlocksError; all stays on the host."""
    blocks = block_manager(part, num_blocks=4)
    blocks.allocate("a", 3)
    blocks.swap_out("a")
    blocks.allocate("b", 2)
    why = "See that the whole table fits before a host block is given back or a reference taken."
    with refused(blocks, OutOfBlocksError, "swapping 3 blocks in when 2 are free", why):
        blocks.swap_in("a")


@task("3.3")
def test_a_refused_swap_in_shares_nothing(part: ModuleType) -> None:
    """swap_in that has no room for the rest has taken no reference to what it would have shared."""
    blocks = block_manager(part, num_blocks=4)
    (first, *_) = blocks.allocate("a", 3)
    blocks.hold([first])
    blocks.swap_out("a")
    blocks.allocate("b", 2)
    why = "Take the fresh blocks first, since that may fail; then refer to the shared ones."
    with refused(blocks, OutOfBlocksError, "swapping 2 of 3 blocks in when 1 is free", why):
        blocks.swap_in("a", [first])


def lets_anyone_be_freed(blocks: Any) -> bool:
    """Whether free passes for a request that was only looked at."""
    target = quietly(blocks)
    try:
        target.get_physical_blocks("b")
        target.free("b")
    except BlockStateError:
        return False
    return True


@task("3.3")
def test_a_swapped_table_cannot_be_freed_on_the_device(part: ModuleType) -> None:
    """A request that was swapped out has no table on the device: free raises BlockStateError."""
    blocks = block_manager(part)
    if lets_anyone_be_freed(blocks):
        return  # task 3.1's matter
    blocks.allocate("a", 2)
    blocks.swap_out("a")
    why = "Its table is gone, not empty: a caller that frees it has lost track of where it is."
    with refused(blocks, BlockStateError, "freeing a table that is on the host", why):
        blocks.free("a")


@task("3.3")
def test_swapping_out_spares_what_others_share(part: ModuleType) -> None:
    """swap_out gives back one request's references; the blocks of others stay where they are."""
    blocks = block_manager(part)
    shared = list(blocks.allocate("a", 2))
    blocks.share("b", shared)
    blocks.swap_out("a")
    expect_equal(list(blocks.get_physical_blocks("b")), shared, "the table of b", why=OTHERS)
    counts = [blocks.ref_count(block) for block in shared]
    expect_equal(counts, [1, 1], "references to the blocks that b still has", why=OTHERS)


@task("3.3")
def test_swap_in_copies_only_what_is_not_there(part: ModuleType) -> None:
    """Blocks that are on the device already are shared, not copied, and cost no free block."""
    blocks = block_manager(part, num_blocks=4)
    table = list(blocks.allocate("a", 3))
    blocks.hold(table[:2])
    out = list(blocks.swap_out("a"))
    blocks.allocate("b", 1)
    why = "`shared` replaces the first entries: only the rest comes from the host."
    back = list(blocks.swap_in("a", table[:2]))
    expect_equal([host for host, _ in back], [out[2][1]], "the host blocks to copy", why=why)
    now = [*table[:2], *(device for _, device in back)]
    expect_equal(list(blocks.get_physical_blocks("a")), now, "the table of a", why=why)
    counts = [blocks.ref_count(block) for block in now]
    expect_equal(counts, [2, 2, 1], "references: held and in the table, then fresh", why=why)
    expect_equal(blocks.num_free_host, 4, "num_free_host", why="The whole table left the host.")


@task("3.3")
def test_swap_in_shares_no_free_block(part: ModuleType) -> None:
    """swap_in that is to share a free block raises BlockStateError; all stays on the host."""
    blocks = block_manager(part)
    blocks.allocate("a", 3)
    blocks.swap_out("a")
    why = (
        "A free block has lost its content, and may be handed out at any moment: nothing is shared."
    )
    with refused(blocks, BlockStateError, "swap_in that shares a free block", why):
        blocks.swap_in("a", [0])


@task("3.3")
def test_discarding_frees_the_host_blocks(part: ModuleType) -> None:
    """discard_swapped gives the host blocks back, and the request is swapped out no more."""
    blocks = block_manager(part)
    for _ in range(2):
        blocks.allocate("a", 3)
        blocks.swap_out("a")
        blocks.discard_swapped("a")
    seen = (blocks.num_free_host, blocks.num_swapped_blocks("a"), blocks.num_free)
    expect_equal(seen, (4, 0, 8), "free host blocks, a's blocks there, free device blocks")


@task("3.3")
def test_any_script_of_copies_and_swaps(part: ModuleType) -> None:
    """After any calls, nothing is lost on either side, and each pair names the right content."""
    run_machine(SwapMachine, part, runs=65, steps=25)
