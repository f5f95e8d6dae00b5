"""Task 3.10: what a swap asks for, what it takes, and what it promises beside others."""

from types import ModuleType

from grader.kit import expect, expect_equal, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.swapping import ALL_OR_NONE, LOST, A, B, swap_in, swapped
from yaie.core.errors import OutOfBlocksError
from yaie.core.request import RequestStatus


@task("3.10")
def test_blocks_without_content_need_the_host_too(part: ModuleType) -> None:
    """swap_out moves the whole table, those blocks too that no computed token is in."""
    desk = CacheDesk(part, num_host_blocks=2)
    request = desk.admit(A[:3])
    desk.compute(request)
    expect(desk.cache.allocate(request, 9), "no room in a pool with free blocks")
    before = desk.holdings()
    why = "Ask for the length of the table: it may reach beyond the computed tokens."
    try:
        got = desk.cache.swap_out(request)
    except OutOfBlocksError as error:
        problem = f"swap_out(r0) raises: {error}"
        why = f"{why} Here that is 3 blocks, one with computed tokens, and 2 are free: False."
        expect(False, problem, why=why)
        raise
    expect_equal(got, False, "what swap_out returned for 3 blocks onto 2", why=why)
    desk.expect_unchanged(before, "swap_out said no", why)


@task("3.10")
def test_what_is_shared_evicts_nothing(part: ModuleType) -> None:
    """swap_in evicts for the blocks that are to be copied, and not for those that it shares."""
    desk, request = swapped(part, length=14)
    desk.evict(1)
    desk.file(B[:20])
    assert desk.tree is not None
    swap_in(desk, request, 14, copied=2)
    why = "1 block of 8 was free and 2 were needed: one goes. Two more are shared, which takes no room."
    expect_equal(desk.tree.num_blocks, 6, "blocks that are still cached, of 7", why=why)
    desk.check(LOST)


@task("3.10")
def test_a_single_block_keeps_the_reserve_too(part: ModuleType) -> None:
    """swap_in that lacks one block leaves keep_free others, as one that lacks several does."""
    desk, request = swapped(part, length=14)
    why = "3 of its 4 blocks are cached. The fourth is taken from 5 that are free: 4 are left."
    got = desk.cache.swap_in(request, 14, keep_free=5)
    expect_equal(got, False, "what swap_in returned for 1 block of 5, with 5 to be kept", why=why)
    got = desk.cache.swap_in(request, 14, keep_free=4)
    expect_equal(got, True, "what swap_in returned for 1 block of 5, with 4 to be kept", why=why)


@task("3.10")
def test_who_may_reuse_no_prefix_has_its_own_blocks(part: ModuleType) -> None:
    """What the tree still has is not copied back, also for a request that may reuse no prefix."""
    desk = CacheDesk(part, num_host_blocks=4)
    request = desk.admit(A[:10], may_reuse=False)
    desk.compute(request, commit=True)
    if desk.misfits():
        return  # another task's matter
    expect_equal(desk.cache.swap_out(request), True, "what swap_out returned", why=ALL_OR_NONE)
    request.status = RequestStatus.SWAPPED
    desk.carry_out()
    why = f"{LOST} It has computed these tokens: `may_reuse_prefix` is about its admission alone."
    swap_in(desk, request, 11, copied=1, why=why)


@task("3.10")
def test_each_swap_of_a_step_is_promised(part: ModuleType) -> None:
    """take_moves hands over what all calls since the last one have promised."""
    desk = CacheDesk(part, num_host_blocks=4)
    both = [desk.admit(A[:5]), desk.admit(B[:5])]
    for request in both:
        desk.compute(request)
    tables = [desk.table(request) for request in both]
    for request in both:
        expect_equal(desk.cache.swap_out(request), True, "what swap_out returned", why=ALL_OR_NONE)
        request.status = RequestStatus.SWAPPED
    why = "Several tables may move in one step: add to `_moves`, and leave there what others promised."
    moved = [device for device, _ in desk.carry_out()[0]]
    expect_equal(moved, tables[0] + tables[1], "the device blocks that go to the host", why=why)
    if desk.misfits():
        return  # task 3.8's matter
    desk.evict(2)
    for request in both:
        expect_equal(desk.cache.swap_in(request, 6), True, "what swap_in returned")
    expect_equal(len(desk.carry_out()[1]), 4, "how many blocks come from the host", why=why)
