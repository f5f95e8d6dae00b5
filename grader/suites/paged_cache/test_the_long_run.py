"""Tasks 3.1 to 3.4 beyond one call: results that stay, long tables, and nothing that is left behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import torch

from grader.kit import (
    Mismatch,
    expect_equal,
    expect_raises,
    note,
    quietly,
    start_script,
    task,
    watch,
)
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.paged_cache.block_view import block_manager
from grader.suites.paged_cache.pool_view import BLOCKS, SIZE, PoolDesk
from yaie.core.batch import KVLayerSpec
from yaie.core.errors import BlockStateError

NAME = "a request whose name would be found in what is kept of it, " * 3
MANY = 1200
"""Blocks of one table, and layers of one pool: more than a test would write down one by one."""
ANY_LENGTH = (
    "A table is as long as its request: a text of 100,000 tokens has 6,250 blocks of 16. What ends "
    "after some number of them loses the rest."
)
ANY_NAME = "A request id is any string. Ask whether it has a table, not whether it has letters."
ANY_SEQUENCE = (
    "Callers pass any sequence of blocks, a tuple too: make a list of it where you need one."
)


SIZES = (8, MANY)
"""Of tables: only if the short one is right, the length of the long one is what is wrong."""


def a_table(part: ModuleType, size: int, spare: int = 0) -> tuple[Any, list[int], str]:
    """A manager whose request a has a table of so many blocks; the table; and what would be wrong with
    it. spare: blocks that stay free."""
    start_script()
    note(f"blocks = BlockManager({size + spare}, 4)")
    blocks = watch(part.BlockManager(size + spare, 4), "blocks")
    return blocks, list(blocks.allocate("a", size)), ANY_LENGTH if size == MANY else ""


@contextmanager
def goes_well(what: str, why: str) -> Iterator[None]:
    """Calls that must not be refused."""
    try:
        yield
    except BlockStateError as error:
        raise Mismatch(f"{what} is refused: BlockStateError: {error}", why=why) from error


def expect_references(blocks: Any, table: list[int], wanted: int, when: str, why: str) -> None:
    own = quietly(blocks)
    counts = [own.ref_count(block) for block in table]
    odd = [(index, found) for index, found in enumerate(counts) if found != wanted]
    what = f"the first entries (index, references) that have not {wanted}, {when}"
    expect_equal(odd[:3], [], what, why=why)


@task("3.1")
def test_a_table_of_many_blocks(part: ModuleType) -> None:
    """Every block of a long table has its reference, and is free when the table is gone."""
    for size in SIZES:
        blocks, table, why = a_table(part, size)
        expect_equal(len(set(table)), size, "how many blocks the table has", why=why)
        expect_references(blocks, table, 1, f"of the {size} that were allocated", why)
        with goes_well(f"freeing a table of {size:,} blocks", why):
            blocks.free("a")
        expect_equal(blocks.num_free, size, "num_free after the table was freed", why=why)
        expect_references(blocks, table, 0, "after the table was freed", why)


@task("3.1")
def test_the_empty_name_names_a_table(part: ModuleType) -> None:
    """The request id "" is a name like any other."""
    blocks = block_manager(part)
    given = blocks.allocate("", 2)
    expect_equal(blocks.num_free, 6, "num_free after 2 of 8 blocks went to the request ''")
    expect_equal(blocks.get_physical_blocks(""), given, "the table of ''", why=ANY_NAME)
    blocks.free("")
    expect_equal(blocks.num_free, 8, "num_free after '' was freed", why=ANY_NAME)


@task("3.1")
def test_what_was_handed_out_stays(part: ModuleType) -> None:
    """What allocate returned, and one request's table, are no lists that another call fills."""
    blocks = block_manager(part)
    takes = [lambda key=key: blocks.allocate(key, 2) for key in "aba"]
    expect_results_stand(takes, "allocate")
    looks = [lambda key=key: blocks.get_physical_blocks(key) for key in "abc"]
    expect_results_stand(looks, "get_physical_blocks")


@task("3.1")
def test_tables_leave_nothing_behind(part: ModuleType) -> None:
    """Of requests that are over nothing is kept, not even their names."""
    blocks, number = part.BlockManager(8, 4), count()

    def call() -> None:
        key = f"{NAME} {next(number)}"
        blocks.allocate(key, 2)
        blocks.get_physical_blocks(key)
        blocks.free(key)
        blocks.get_physical_blocks(key)

    expect_keeps_nothing(call, "a request that allocates, is looked at and is freed")


@task("3.2")
def test_many_blocks_are_shared_and_held(part: ModuleType) -> None:
    """Each of many blocks counts its holders, and the last of them is looked at as the first is."""
    for size in SIZES:
        blocks, table, why = a_table(part, size, spare=1)
        (free,) = set(range(size + 1)) - set(table)
        with goes_well(f"sharing or holding {size:,} blocks", why):
            blocks.share("b", tuple(table))
            expect_references(blocks, table, 2, "after b shares them", why)
            blocks.hold(tuple(table))
        expect_references(blocks, table, 3, "after hold", why)
        expect_refused(blocks, table, free, why)
        with goes_well(f"freeing two tables of the same {size:,} blocks", why):
            blocks.free("a")
            blocks.free("b")
        expect_equal(blocks.num_free, 1, "num_free while all but one are held", why=why)
        with goes_well(f"releasing {size:,} blocks that one call has held", why):
            blocks.release(tuple(table))
        expect_equal(blocks.num_free, size + 1, "num_free after release", why=why)
        with expect_raises(BlockStateError, "releasing the last of them again", why=why):
            blocks.release(table[-1:])


def expect_refused(blocks: Any, table: list[int], free: int, why: str) -> None:
    """Calls with all blocks of a table and one more, which is free."""
    for what, call in (
        ("sharing them and a free block", partial(blocks.share, "c")),
        ("holding them and a free block", blocks.hold),
        ("releasing them and a block without a hold", blocks.release),
    ):
        with expect_raises(BlockStateError, f"{what}, which comes last", why=why):
            call([*table, free])
        expect_references(blocks, table, 3, f"after {what} was refused", why)


@task("3.2")
def test_a_table_is_replaced_by_any_sequence(part: ModuleType) -> None:
    """replace takes a tuple of blocks as well as a list, for the request "" as for any other."""
    for key in ("a", ""):
        blocks = block_manager(part)
        theirs = list(blocks.allocate("b", 2))
        blocks.share(key, theirs)
        expect_equal(blocks.get_physical_blocks(key), theirs, f"the table of {key!r}", why=ANY_NAME)
        others = tuple(blocks.allocate("c", 2))
        blocks.replace(key, 0, others)
        got = blocks.get_physical_blocks(key)
        why = ANY_NAME if got == theirs else ANY_SEQUENCE
        expect_equal(got, list(others), f"the table of {key!r} after replace", why=why)


@task("3.2")
def test_shared_blocks_leave_nothing_behind(part: ModuleType) -> None:
    """Of what was shared, held, replaced and given back nothing is kept."""
    blocks, number = part.BlockManager(8, 4), count()
    mine = list(blocks.allocate("mine", 2))

    def call() -> None:
        key = f"{NAME} {next(number)}"
        blocks.share(key, mine)
        blocks.hold(mine)
        blocks.replace(key, 0, mine[1:])
        blocks.release(mine)
        blocks.free(key)

    expect_keeps_nothing(call, "a request that shares, and is freed")


@task("3.3")
def test_the_empty_name_is_copied_and_swapped(part: ModuleType) -> None:
    """The request id "" is a name like any other: on write, to the host, and back."""
    blocks = block_manager(part)
    first, second = blocks.allocate("a", 2)
    blocks.share("", [first, second])
    copy = blocks.copy_on_write("", 0)
    expect_equal(copy is None, False, "whether copy_on_write of '' returned None", why=ANY_NAME)
    expect_equal(copy[0], first, "the block that it says to copy from", why=ANY_NAME)
    blocks.swap_out("")
    expect_equal(blocks.num_swapped_blocks(""), 2, "blocks of '' on the host", why=ANY_NAME)
    blocks.swap_in("", [first])
    expect_equal(len(blocks.get_physical_blocks("")), 2, "blocks of '' back", why=ANY_NAME)
    blocks.swap_out("")
    blocks.discard_swapped("")
    expect_equal(blocks.num_free_host, 4, "num_free_host after discard_swapped", why=ANY_NAME)


@task("3.3")
def test_moves_stay_and_leave_nothing_behind(part: ModuleType) -> None:
    """The pairs of one move are no list that the next one fills; of what was moved nothing is kept."""
    watched, number = block_manager(part, 12, 8), count()
    for key in "ab":
        watched.allocate(key, 2)
    for name in ("swap_out", "swap_in"):
        expect_results_stand([partial(getattr(watched, name), key) for key in "ab"], name)
    start_script()
    blocks = quietly(watched)
    mine = list(blocks.get_physical_blocks("a"))

    def call() -> None:
        key = f"{NAME} {next(number)}"
        blocks.share(key, mine)
        blocks.copy_on_write(key, 0)
        blocks.swap_out(key)
        blocks.swap_in(key, mine[:1])
        blocks.swap_out(key)
        blocks.discard_swapped(key)

    expect_keeps_nothing(call, "a request that is copied, swapped and dropped")


@task("3.4")
def test_what_the_pool_gave_stays(part: ModuleType) -> None:
    """Slots, and what was gathered, are made for their call; and nothing is kept of any call."""
    desk = PoolDesk(part)
    desk.fill()
    pool = desk.pool
    tables = [torch.tensor([[first, first + 1]], dtype=torch.int32) for first in range(3)]
    rows, positions = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    slots = [partial(pool.slot_mapping, table, rows, positions) for table in tables]
    expect_results_stand(slots, "slot_mapping")
    expect_results_stand([partial(pool.gather, 0, table) for table in tables], "gather")
    start_script()
    pool = part.KVPool([KVLayerSpec(1, 2)], BLOCKS, SIZE, torch.float32, torch.device("cpu"), 1)
    new, where = torch.ones(3, 1, 2), torch.arange(3)

    def call() -> None:
        pool.write(0, new, new, where)
        pool.gather(0, tables[0])
        pool.slot_mapping(tables[0], rows, positions)
        for move, pair in (
            (pool.copy_blocks, (0, 1)),
            (pool.swap_out, (1, 0)),
            (pool.swap_in, (0, 2)),
        ):
            move([pair])

    expect_keeps_nothing(call, "what is written, gathered and moved in a pool")


@task("3.4")
def test_every_layer_is_moved(part: ModuleType) -> None:
    """A block is copied and swapped in each layer, however many there are."""
    start_script()
    note(f"pool = KVPool({MANY} layers, num_blocks=3, block_size=1, num_host_blocks=1)")
    one = KVLayerSpec(1, 1)
    pool = part.KVPool([one] * MANY, 3, 1, torch.float32, torch.device("cpu"), 1)
    for layer in (0, MANY - 1):
        note(f"block 0 of layer {layer} is written")
        pool.write(layer, torch.ones(1, 1, 1), -torch.ones(1, 1, 1), torch.tensor([0]))
    pool.copy_blocks([(0, 1)])
    pool.swap_out([(1, 0)])
    pool.swap_in([(0, 2)])
    for layer in (0, MANY - 1):
        k, v = (each.flatten().tolist() for each in pool.blocks(layer))
        what = f"K of blocks 0 to 2 of layer {layer}, copied to 1, and over the host to 2"
        expect_equal((k, v), ([1.0] * 3, [-1.0] * 3), what.replace("K of", "K and V of"))
