"""Task 3.8: what is computed is filed in the tree, and what no request needs is freed."""

from types import ModuleType

from grader.kit import expect, expect_equal, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.filed import COMPUTED, ONCE, OWN, SETTLED, TWICE, A, B, found
from grader.suites.paged_cache.guards import guarded_desk


@task("3.8")
def test_full_blocks_are_filed(part: ModuleType) -> None:
    """commit files the request's own blocks, as far as they are full, and holds them for the tree."""
    desk = CacheDesk(part)
    request = desk.admit(A[:6])
    expect(desk.compute(request), "no room in an empty pool")
    desk.cache.commit(request)
    table = desk.table(request)
    why = "A block that is not full yet will be written to again; the tree files whole blocks."
    expect_equal(found(desk, A[:6]), table[:1], "the tree's blocks for the 6 tokens", why=why)
    expect_equal(
        desk.refs(table), [2, 1], "references: table and tree, then the table alone", why=OWN
    )
    desk.check(OWN)


@task("3.8")
def test_only_computed_tokens_are_filed(part: ModuleType) -> None:
    """Blocks that are allocated ahead, or whose last token is only sampled, are not filed."""
    desk = CacheDesk(part)
    request = desk.admit(A[:7])
    desk.compute(request)  # and samples an eighth token, whose K and V are not computed
    desk.cache.allocate(request, 8)
    desk.cache.commit(request)
    count = len(found(desk, request.token_ids))
    expect_equal(count, 1, "blocks filed of 7 computed tokens", why=COMPUTED)
    desk = CacheDesk(part)
    late = desk.admit(B[:8])
    desk.cache.allocate(late, 8)
    desk.cache.commit(late)
    desk.leave(late)
    what = "blocks filed for a prompt that was never computed"
    expect_equal(found(desk, B[:8]), [], what, why=COMPUTED)
    desk.check(COMPUTED)


@task("3.8")
def test_blocks_in_flight_are_not_filed(part: ModuleType) -> None:
    """commit files what has a result; a chunk that is still in flight is filed after its own."""
    desk = CacheDesk(part)
    request = desk.admit(A[:13])
    for num_tokens in (5, 4, 4):
        desk.launch(request, num_tokens)
    for filed in (0, 1, 2, 3):
        if filed:
            desk.settle(request)
        desk.cache.commit(request)
        settled = request.num_computed_tokens - request.num_in_flight
        what = f"the tree's blocks with {settled} of 13 tokens settled"
        expect_equal(found(desk, A[:13]), desk.table(request)[:filed], what, why=SETTLED)
        desk.check(SETTLED)


@task("3.8")
def test_committing_again_changes_nothing(part: ModuleType) -> None:
    """Each step commits; a block that is filed is not held a second time."""
    desk = CacheDesk(part)
    request = desk.admit(A[:9])
    desk.compute(request)
    desk.cache.commit(request)
    before = desk.holdings()
    desk.compute(request, commit=True)
    desk.cache.commit(request)
    why = (
        "Only what is newly filed gets the tree's reference; another one would never be given back."
    )
    desk.expect_unchanged(before, "two more commits", why)


@task("3.8")
def test_commit_files_the_same_table(part: ModuleType) -> None:
    """Filing blocks that the tree did not have changes no entry of the table."""
    desk = CacheDesk(part)
    request = desk.admit(A[:9])
    desk.compute(request)
    handed_out = desk.blocks.get_physical_blocks("r0")
    for turn in ("first", "second"):
        desk.cache.commit(request)
        expect(
            desk.blocks.get_physical_blocks("r0") is handed_out,
            f"the {turn} commit made a new list of a table in which it replaced nothing",
            why="A table is copied to the device anew when its list is a new one.",
        )
        for _ in range(3):
            desk.compute(request)


@task("3.8")
def test_commit_goes_on_where_it_stopped(part: ModuleType) -> None:
    """A prompt computed in chunks is filed block by block, generated tokens with it."""
    desk = CacheDesk(part)
    request = desk.admit(A[:10])
    for num_tokens, filed in ((3, 0), (3, 1), (4, 2), (1, 2), (1, 3)):
        expect(desk.compute(request, num_tokens), "no room in a pool with free blocks")
        desk.cache.commit(request)
        what = f"the tree's blocks with {request.num_computed_tokens} tokens computed"
        got = found(desk, request.token_ids)
        expect_equal(got, desk.table(request)[:filed], what, why=COMPUTED)
        desk.check(OWN)


@task("3.8")
def test_a_step_that_fills_no_block_costs_nothing(part: ModuleType) -> None:
    """commit leaves the tree alone as long as no further block is full."""
    desk, guard = guarded_desk(part)
    request = desk.admit(A[:9])
    desk.compute(request, commit=True)
    before = guard.walks
    for _ in range(2):
        desk.compute(request, commit=True)
    why = "Nearly every decode step is one of those, for every request that runs: compare two numbers."
    expect_equal(guard.walks - before, 0, "walks down the tree in two decode steps", why=why)


@task("3.8")
def test_a_fork_shares_what_its_sibling_filed(part: ModuleType) -> None:
    """Once a request has filed its prompt, a fork of it starts with all but one token computed."""
    desk = CacheDesk(part)
    first = desk.admit(A[:10])
    for num_tokens in (6, 4):
        desk.compute(first, num_tokens, commit=True)
    fork = desk.admit(A[:10], fork_of=first)
    why = "commit remembers how far the table is filed: only filed blocks stay where they are."
    expect_equal(fork.num_computed_tokens, 9, "num_computed_tokens of the fork", why=why)
    expect_equal(desk.table(fork), desk.table(first), "the fork's table", why=why)


@task("3.8")
def test_a_block_that_a_fork_reads_is_held_like_any_other(part: ModuleType) -> None:
    """The tree takes a reference to each block that it files, also to one that another table has."""
    desk = CacheDesk(part)
    first = desk.admit(A[:8])
    desk.compute(first, 4, commit=True)
    desk.compute(first, 4)
    desk.admit(A[:8], fork_of=first)
    table = desk.table(first)
    if desk.refs(table) != [3, 2]:
        return  # another task's matter
    desk.cache.commit(first)
    why = f"{OWN} How many others have the block makes no difference."
    expect_equal(desk.refs(table), [3, 3], "references: two tables and the tree", why=why)


@task("3.8")
def test_a_prefix_computed_twice_is_kept_once(part: ModuleType) -> None:
    """Where the tree has the prefix already, the table is pointed at the tree's blocks."""
    desk = CacheDesk(part)
    first, second = desk.admit(A[:10]), desk.admit(A[:10])
    for request in (first, second):
        desk.compute(request)
    own = desk.table(second)
    desk.cache.commit(first)
    handed_out = desk.blocks.get_physical_blocks("r1")
    desk.cache.commit(second)
    table = [*desk.table(first)[:2], own[2]]
    expect_equal(desk.table(second), table, "the table of the second to commit", why=ONCE)
    expect_equal(desk.refs(own), [0, 0, 1], "references to the blocks it computed", why=TWICE)
    expect_equal(desk.refs(table), [3, 3, 1], "references: two tables and the tree", why=ONCE)
    expect_equal(
        list(handed_out), own, "the table as it was handed out before",
        why="A reader may have copied it: use `replace`, which makes a new list.",
    )  # fmt: skip
    desk.check(ONCE)
    expect(desk.compute(second, commit=True), "no room in a pool with free blocks")
    desk.check(ONCE)


@task("3.8")
def test_who_may_not_reuse_a_prefix_files_its_own(part: ModuleType) -> None:
    """A request that computed a cached prefix again has the tree's blocks for it afterwards."""
    desk = CacheDesk(part)
    path = desk.file(A[:8])
    request = desk.admit(A[:11], may_reuse=False)
    expect(desk.compute(request, commit=True), "allocate refused 3 of 6 free blocks")
    expect_equal(desk.table(request)[:2], path, "the first two blocks of the table", why=ONCE)
    desk.check()


@task("3.8")
def test_who_is_overtaken_takes_over_the_rest(part: ModuleType) -> None:
    """Only the blocks from where this request had filed to where the tree ends are replaced."""
    desk = CacheDesk(part, num_blocks=12)
    slow, fast = desk.admit(A[:18]), desk.admit(A[:12])
    desk.compute(slow, 5, commit=True)
    desk.compute(fast, commit=True)
    desk.compute(slow, 12)
    own = desk.table(slow)
    desk.cache.commit(slow)
    why = "One block was filed before, two more are in the tree by now, the fourth is new."
    table = [*desk.table(fast)[:3], *own[3:]]
    expect_equal(desk.table(slow), table, "the table of the slow request", why=why)
    expect_equal(found(desk, A[:18]), table[:4], "the tree's blocks for its tokens", why=why)
    expect_equal(desk.refs(own), [3, 0, 0, 2, 1], "references to the blocks it had", why=TWICE)
    desk.check(why)


@task("3.8")
def test_the_prefix_is_locked_at_every_moment(part: ModuleType) -> None:
    """commit locks the longer path before it unlocks the shorter one."""
    desk, guard = guarded_desk(part)
    request = desk.admit(A[:12])
    desk.compute(request, 4, commit=True)
    desk.compute(request, 4)
    guard.watched = lambda: desk.table(request)
    desk.cache.commit(request)
    why = "Between unlock and lock nothing protects the blocks that the request reads: lock first."
    expect_equal(guard.exposed, [], "blocks of the table that were unlocked meanwhile", why=why)
    desk.check(why)


@task("3.8")
def test_without_a_tree_all_blocks_return(part: ModuleType) -> None:
    """Given no tree, commit does nothing and free gives every block back."""
    desk = CacheDesk(part, caching=False)
    request = desk.admit(A[:10])
    desk.compute(request, commit=True)
    expect_equal(len(desk.table(request)), 3, "blocks in the table after commit")
    desk.leave(request)
    expect_equal(desk.blocks.num_free, 8, "free blocks")
