"""Tasks 3.1 to 3.3: which list a table is, for readers that keep what they were handed."""

from types import ModuleType

from grader.kit import expect_equal, expect_raises, task
from grader.suites.paged_cache.block_view import block_manager
from yaie.core.errors import BlockStateError

STAYS = (
    "A reader that keeps the list goes by it: a table that ends, or moves away, leaves the list that "
    "was handed out as it is."
)
OWN_LIST = (
    "What is passed belongs to the caller, and may be another request's table: copy its blocks into a "
    "list of this request's own."
)


@task("3.1")
def test_a_table_that_ends_leaves_its_list(part: ModuleType) -> None:
    """free takes a table back without a change of the list that was handed out."""
    blocks = block_manager(part)
    blocks.allocate("a", 3)
    table = blocks.get_physical_blocks("a")
    before = list(table)
    blocks.free("a")
    expect_equal(list(table), before, "the list that was handed out before free", why=STAYS)


@task("3.2")
def test_what_is_shared_stays_the_callers(part: ModuleType) -> None:
    """share copies the blocks: the list that it is given grows no more with the table."""
    blocks = block_manager(part)
    blocks.allocate("a", 2)
    given = blocks.get_physical_blocks("a")
    before = list(given)
    blocks.share("b", given)
    blocks.allocate("b", 1)
    what = "the table of a, which b was given to share, after b has grown"
    expect_equal(list(blocks.get_physical_blocks("a")), before, what, why=OWN_LIST)


@task("3.2")
def test_a_refused_share_makes_no_table(part: ModuleType) -> None:
    """A request whose share was refused has no table: free raises BlockStateError, as before."""
    blocks = block_manager(part)
    with expect_raises(BlockStateError, "sharing a free block"):
        blocks.share("a", [0])
    ended = "no error"
    try:
        blocks.free("a")
    except BlockStateError:
        ended = "BlockStateError"
    why = "A call that is refused changes nothing: look at all blocks before the table is made."
    what = "how free of a ends, whose share was refused"
    expect_equal(ended, "BlockStateError", what, why=why)


@task("3.3")
def test_a_table_that_moves_leaves_its_list(part: ModuleType) -> None:
    """swap_out takes a table from the device without a change of the list that was handed out."""
    blocks = block_manager(part)
    blocks.allocate("a", 3)
    table = blocks.get_physical_blocks("a")
    before = list(table)
    blocks.swap_out("a")
    expect_equal(list(table), before, "the list that was handed out before swap_out", why=STAYS)


@task("3.3")
def test_an_empty_table_takes_no_host_block(part: ModuleType) -> None:
    """A table without a block moves to the host and takes nothing there."""
    blocks = block_manager(part)
    blocks.share("a", [])
    expect_equal(list(blocks.swap_out("a")), [], "the pairs of swap_out for an empty table")
    why = "A slice [-n:] of the free blocks is all of them where n is 0."
    expect_equal(blocks.num_free_host, 4, "num_free_host after an empty table has moved", why=why)
