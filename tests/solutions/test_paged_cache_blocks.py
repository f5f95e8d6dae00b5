"""BlockManager: each rule of its contract, then any sequence of calls against the naive sibling."""

from collections.abc import Callable

import pytest

from solutions.paged_cache import BlockManager
from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError, YaieError


def manager(num_blocks: int = 8, num_host_blocks: int = 4) -> BlockManager:
    return BlockManager(num_blocks, 4, num_host_blocks)


def snapshot(blocks: BlockManager, *request_ids: str) -> tuple[object, ...]:
    """All that the contract lets one see."""
    refs = [blocks.ref_count(block) for block in range(blocks.num_blocks)]
    tables = [list(blocks.get_physical_blocks(key)) for key in request_ids]
    swapped = [blocks.num_swapped_blocks(key) for key in request_ids]
    return refs, tables, swapped, blocks.num_free, blocks.num_free_host


def test_blocks_handed_out_are_distinct() -> None:
    blocks = manager()
    given = blocks.allocate("a", 5) + blocks.allocate("b", 3)
    assert sorted(given) == list(range(8))
    assert blocks.num_free == 0


def test_allocate_appends_to_the_table() -> None:
    blocks = manager()
    first, second = blocks.allocate("a", 2), blocks.allocate("a", 1)
    assert blocks.get_physical_blocks("a") == first + second


def test_unknown_request_has_an_empty_table() -> None:
    assert manager().get_physical_blocks("nobody") == []


def test_freed_blocks_can_be_had_again() -> None:
    blocks = manager(num_blocks=3)
    blocks.allocate("a", 3)
    blocks.free("a")
    assert len(blocks.allocate("b", 3)) == 3


def test_growing_keeps_the_list_object_and_replacing_does_not() -> None:
    blocks = manager()
    blocks.allocate("a", 2)
    blocks.allocate("b", 2)
    table = blocks.get_physical_blocks("a")
    blocks.allocate("a", 1)
    blocks.share("a", blocks.get_physical_blocks("b"))
    assert blocks.get_physical_blocks("a") is table
    old = list(table)
    blocks.replace("a", 0, blocks.get_physical_blocks("b"))
    assert blocks.get_physical_blocks("a") is not table
    assert table == old


def test_shared_block_is_free_only_after_its_last_holder() -> None:
    blocks = manager()
    shared = blocks.allocate("a", 2)
    blocks.share("b", shared)
    blocks.hold(shared)
    assert [blocks.ref_count(block) for block in shared] == [3, 3]
    blocks.free("a")
    blocks.free("b")
    assert blocks.num_free == 6
    blocks.release(shared)
    assert blocks.num_free == 8


def test_copy_on_write_of_a_sole_holder_copies_nothing() -> None:
    blocks = manager()
    before = blocks.allocate("a", 2)
    assert blocks.copy_on_write("a", 1) is None
    assert blocks.get_physical_blocks("a") == before


def test_copy_on_write_leaves_the_other_holders_their_block() -> None:
    blocks = manager()
    (block,) = blocks.allocate("a", 1)
    blocks.share("b", [block])
    pair = blocks.copy_on_write("b", 0)
    assert pair is not None
    old, fresh = pair
    assert old == block != fresh
    assert blocks.get_physical_blocks("a") == [block]
    assert blocks.get_physical_blocks("b") == [fresh]
    assert (blocks.ref_count(block), blocks.ref_count(fresh)) == (1, 1)
    blocks.check()


def test_replace_drops_the_old_references() -> None:
    blocks = manager()
    blocks.allocate("a", 3)
    theirs = blocks.allocate("b", 2)
    mine = list(blocks.get_physical_blocks("a"))
    blocks.replace("a", 1, theirs)
    assert blocks.get_physical_blocks("a") == [mine[0], *theirs]
    assert [blocks.ref_count(block) for block in mine] == [1, 0, 0]
    blocks.check()


def test_replacing_a_block_by_itself_keeps_it() -> None:
    blocks = manager()
    mine = blocks.allocate("a", 2)
    blocks.replace("a", 0, list(mine))
    assert blocks.get_physical_blocks("a") == mine
    assert blocks.num_free == 6
    blocks.check()


def test_swap_round_trip_pairs_each_block_with_its_own_content() -> None:
    blocks = manager()
    table = list(blocks.allocate("a", 3))
    content = {block: f"content of entry {i}" for i, block in enumerate(table)}
    out = blocks.swap_out("a")
    assert [device for device, _ in out] == table
    assert blocks.num_swapped_blocks("a") == 3
    assert (blocks.num_free, blocks.num_free_host) == (8, 1)
    host = {host: content[device] for device, host in out}
    blocks.allocate("b", 2)
    back = {device: host[on_host] for on_host, device in blocks.swap_in("a")}
    entries = [back[block] for block in blocks.get_physical_blocks("a")]
    assert entries == [f"content of entry {i}" for i in range(3)]
    assert (blocks.num_swapped_blocks("a"), blocks.num_free_host) == (0, 4)
    blocks.check()


def test_table_may_fill_the_host_to_its_last_block() -> None:
    blocks = manager(num_host_blocks=3)
    blocks.allocate("a", 3)
    assert len(blocks.swap_out("a")) == 3
    assert blocks.num_free_host == 0


def test_without_host_blocks_nothing_can_be_swapped_out() -> None:
    blocks = BlockManager(4, block_size=2)
    blocks.allocate("a", 1)
    assert (blocks.block_size, blocks.num_host_blocks) == (2, 0)
    with pytest.raises(OutOfBlocksError):
        blocks.swap_out("a")


def test_swap_in_copies_only_what_is_not_shared() -> None:
    blocks = manager()
    table = list(blocks.allocate("a", 3))
    blocks.hold(table[:1])
    out = blocks.swap_out("a")
    back = blocks.swap_in("a", table[:1])
    assert [host for host, _ in back] == [host for _, host in out[1:]]
    assert blocks.get_physical_blocks("a") == [table[0], *(device for _, device in back)]
    assert blocks.ref_count(table[0]) == 2
    blocks.check()


def test_swapping_out_spares_blocks_that_others_share() -> None:
    blocks = manager()
    shared = blocks.allocate("a", 2)
    blocks.share("b", shared)
    blocks.swap_out("a")
    assert blocks.get_physical_blocks("b") == shared
    assert [blocks.ref_count(block) for block in shared] == [1, 1]


def test_discarding_frees_the_host_blocks() -> None:
    blocks = manager()
    blocks.allocate("a", 3)
    blocks.swap_out("a")
    blocks.discard_swapped("a")
    assert (blocks.num_free_host, blocks.num_swapped_blocks("a")) == (4, 0)
    blocks.check()


BAD_CALLS: dict[str, tuple[type[YaieError], Callable[[BlockManager], object]]] = {
    "too many": (OutOfBlocksError, lambda blocks: blocks.allocate("b", 4)),
    "free twice": (BlockStateError, lambda blocks: blocks.free("freed")),
    "free unknown": (BlockStateError, lambda blocks: blocks.free("nobody")),
    "share free": (BlockStateError, lambda blocks: blocks.share("b", [HELD, FREE])),
    "hold free": (BlockStateError, lambda blocks: blocks.hold([HELD, FREE])),
    "release unheld": (BlockStateError, lambda blocks: blocks.release([FREE])),
    "release a table's": (BlockStateError, lambda blocks: blocks.release([1])),
    "replace by free": (BlockStateError, lambda blocks: blocks.replace("a", 0, [FREE])),
    "host full": (OutOfBlocksError, lambda blocks: blocks.swap_out("a")),
    "no room to return": (OutOfBlocksError, lambda blocks: blocks.swap_in("swapped")),
}
HELD, FREE = 0, 7


def busy_manager() -> BlockManager:
    """5 of 8 blocks in a's table, the first of them held; 4 of 6 host blocks taken."""
    blocks = BlockManager(8, 4, 6)
    blocks.allocate("swapped", 4)
    blocks.swap_out("swapped")
    blocks.allocate("freed", 1)
    blocks.free("freed")
    assert blocks.allocate("a", 5) == [0, 1, 2, 3, 4]
    blocks.hold([HELD])
    return blocks


@pytest.mark.parametrize("name", BAD_CALLS)
def test_refused_call_changes_nothing(name: str) -> None:
    error, call = BAD_CALLS[name]
    blocks = busy_manager()
    before = snapshot(blocks, "a", "b", "swapped")
    with pytest.raises(error):
        call(blocks)
    assert snapshot(blocks, "a", "b", "swapped") == before
    blocks.check()


def test_copy_on_write_without_a_free_block_changes_nothing() -> None:
    blocks = manager(num_blocks=2)
    blocks.share("b", blocks.allocate("a", 2))
    before = snapshot(blocks, "a", "b")
    with pytest.raises(OutOfBlocksError):
        blocks.copy_on_write("b", 0)
    assert snapshot(blocks, "a", "b") == before


def test_release_of_one_hold_too_many_changes_nothing() -> None:
    blocks = busy_manager()
    with pytest.raises(BlockStateError):
        blocks.release([HELD, HELD])
    blocks.check()


def test_swap_in_with_a_free_shared_block_changes_nothing() -> None:
    blocks = busy_manager()
    with pytest.raises(BlockStateError):
        blocks.swap_in("swapped", [FREE, FREE])
    blocks.check()


CORRUPTIONS: dict[str, tuple[Callable[[BlockManager], object], str]] = {
    "lost table": (lambda blocks: blocks._tables.clear(), "block 0 counts 2 references but has 1"),
    "lost hold": (lambda blocks: blocks._holds.clear() or blocks._holds.extend([0] * 8), "block 0"),
    "not on the free list": (lambda blocks: blocks._free.remove(FREE), r"blocks \[7\] leaked"),
    "on it twice": (lambda blocks: blocks._free.append(FREE), "on the free list twice"),
    "in use and on it": (
        lambda blocks: blocks._free.append(3),
        r"blocks \[3\] are free and in use",
    ),
    "host block leaked": (lambda blocks: blocks._host_tables.clear(), r"host blocks .* leaked"),
    "host block shared": (
        lambda blocks: blocks._host_tables.update(b=blocks._host_tables["swapped"]),
        "host block is in two tables",
    ),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_check_names_what_is_wrong(name: str) -> None:
    corrupt, message = CORRUPTIONS[name]
    blocks = busy_manager()
    corrupt(blocks)
    with pytest.raises(InvariantError, match=message):
        blocks.check()
