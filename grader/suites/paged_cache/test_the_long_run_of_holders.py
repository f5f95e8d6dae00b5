"""Tasks 3.2 to 3.5 with more than small tests have: holders of a block, blocks of a pool and a path."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from grader.kit import expect_close, expect_equal, note, start_script, task
from grader.kit.growth import expect_growth
from grader.suites.paged_cache.block_view import block_manager
from grader.suites.paged_cache.cache_desk import CacheDesk
from yaie.core.batch import KVLayerSpec

HOLDERS = 300
"""Of one block: more than a byte counts."""
BLOCKS = 40_000
"""Of a pool: more than 16 bits count."""
COUNTED = (
    "The blocks of a system prompt are in the table of every request that runs, and there may be "
    "hundreds: a count of references is an int."
)
EACH = "One reference for each time that a block is named: go through the list once, with counts."
NUMBERS = "A pool has as many blocks as fit into memory: their numbers need more than 16 bits."


@task("3.2")
def test_hundreds_hold_a_block(part: ModuleType) -> None:
    """A block counts all that hold it, however many those are."""
    start_script()
    note(f"blocks = BlockManager(2, 4); block 0 is in {HOLDERS} tables, and as often held")
    blocks = part.BlockManager(2, 4)
    (block,) = blocks.allocate("first", 1)
    names = [f"request {number}" for number in range(HOLDERS)]
    try:
        for name in names:
            blocks.share(name, [block])
            blocks.hold([block])
        found = blocks.ref_count(block)
    except (ValueError, OverflowError) as error:
        found = f"{type(error).__name__}: {error}"
    what = f"references of a block in {HOLDERS + 1} tables that is held {HOLDERS} times"
    expect_equal(found, 2 * HOLDERS + 1, what, why=COUNTED)
    for name in names:
        blocks.free(name)
        blocks.release([block])
    expect_equal(blocks.ref_count(block), 1, "references once all but one have gone", why=COUNTED)


@task("3.2")
def test_holds_are_given_back_as_often_as_named(part: ModuleType) -> None:
    """release that names a block twice gives back two holds of it."""
    blocks = block_manager(part)
    (block,) = blocks.allocate("a", 1)
    for _ in range(2):
        blocks.hold([block])
    blocks.release([block, block])
    expect_equal(blocks.ref_count(block), 1, "references: that of the table", why=EACH)


@task("3.2")
def test_a_block_costs_the_same_beside_others_that_are_named(part: ModuleType) -> None:
    """share, hold and release of n blocks cost n times what one of them costs."""

    def named(n: int) -> tuple[Any, list[int]]:
        blocks = part.BlockManager(n, 4)
        return blocks, list(blocks.allocate("r", n))

    def share(n: int) -> Callable[[], Any]:
        blocks, table = named(n)
        return partial(blocks.share, "s", table)

    def hold(n: int) -> Callable[[], Any]:
        blocks, table = named(n)
        return partial(blocks.hold, table)

    def release(n: int) -> Callable[[], Any]:
        blocks, table = named(n)
        blocks.hold(table)
        return partial(blocks.release, table)

    for call in (share, hold, release):
        what = call.__name__
        expect_growth(part, what, "blocks that it names", call, exponent=1, why=EACH)


@task("3.4")
def test_blocks_with_large_numbers_move(part: ModuleType) -> None:
    """Blocks are copied, swapped and gathered by numbers of any size."""
    start_script()
    note(f"pool = KVPool(one layer, num_blocks={BLOCKS}, block_size=1, num_host_blocks={BLOCKS})")
    cpu = torch.device("cpu")
    pool = part.KVPool([KVLayerSpec(1, 1)], BLOCKS, 1, torch.float32, cpu, BLOCKS)
    k = torch.ones(1, 1, 1)
    last = BLOCKS - 1
    pool.write(0, k, -k, torch.tensor([last]))
    note(f"slot {last} is written; copy_blocks([({last}, {last - 1})])")
    pool.copy_blocks([(last, last - 1)])
    note(f"swap_out([({last - 1}, {last - 2})]); swap_in([({last - 2}, {last - 3})])")
    pool.swap_out([(last - 1, last - 2)])
    pool.swap_in([(last - 2, last - 3)])
    table = torch.tensor([[last, last - 1, last - 3]], dtype=torch.int32)
    keys, values = pool.gather(0, table)
    for name, got, right in (("K", keys, 1.0), ("V", values, -1.0)):
        what = f"{name} of blocks {table[0].tolist()}"
        expect_close(got, torch.full((1, 3, 1, 1), right), what, why=NUMBERS)


@task("3.5")
def test_a_long_prefix_is_shared_whole(part: ModuleType) -> None:
    """Of a long prompt all cached blocks are shared, and counted as filed."""
    desk = CacheDesk(part, num_blocks=32)
    prompt = [*range(101, 201), 7]
    path = desk.file(prompt)
    request = desk.admit(prompt)
    expect_equal(desk.table(request), path, "the table of a prompt with 25 blocks cached")
    desk.check()
