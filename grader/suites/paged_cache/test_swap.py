"""Task 3.7, swap: tables that go to the host and come back."""

from types import ModuleType

from grader.kit import expect, expect_equal, run_machine, task
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from grader.suites.paged_cache.cache_machine import SwapMachine
from yaie.core.request import Request, RequestStatus

A = list(range(1, 21))
B = list(range(21, 41))

ALL_OR_NONE = "A table moves whole or not at all: see that there is room before anything changes."


def swapped(
    part: ModuleType, length: int = 10, *, caching: bool = True
) -> tuple[CacheDesk, Request]:
    """A request that has its prompt computed, whole blocks from the cache, and stands on the host."""
    desk = CacheDesk(part, num_host_blocks=4, caching=caching)
    if caching:
        desk.file(A[: length // 4 * 4])
    request = desk.admit(A[:length])
    desk.compute(request)
    table = desk.table(request)
    got = desk.cache.swap_out(request)
    expect_equal(got, True, f"what swap_out returned with room for all {len(table)} blocks")
    request.status = RequestStatus.SWAPPED
    request.num_preemptions += 1
    moved = [device for device, _ in desk.carry_out()[0]]
    why = "The plan copies what `take_moves` names: each block of the table, in its order."
    expect_equal(moved, table, "the device blocks that are to be copied to the host", why=why)
    return desk, request


def swap_in(desk: CacheDesk, request: Request, num_tokens: int, copied: int) -> None:
    """Back to the device, with `copied` blocks from the host."""
    got = desk.cache.swap_in(request, num_tokens)
    expect_equal(got, True, "what swap_in returned with room enough")
    request.status = RUNNING
    what = "how many blocks are to be copied from the host"
    expect_equal(len(desk.carry_out()[1]), copied, what, why=LOST)


LOST = "What the tree still has need not be copied: only what it has lost meanwhile comes from the host."


@task("3.7")
def test_a_swapped_table_leaves_the_device(part: ModuleType) -> None:
    """swap_out gives the device blocks back; what was filed stays cached, unlocked, for anyone."""
    desk, request = swapped(part)
    expect_equal(desk.table(request), [], "the table on the device")
    expect_equal(desk.blocks.num_swapped_blocks("r0"), 3, "blocks on the host")
    desk.check("The request reads its prefix no more: unlock it, or it can never be evicted.")


@task("3.7")
def test_a_swap_there_and_back_keeps_the_content(part: ModuleType) -> None:
    """What comes back from the host is what went there, entry by entry, with room for more."""
    desk, request = swapped(part, caching=False)
    expect(desk.compute(desk.admit(B[:15])), "no room although the table went to the host")
    swap_in(desk, request, 14, copied=3)
    expect_equal(len(desk.table(request)), 4, "blocks in the table, with room for 14 tokens")
    desk.check("swap_out pairs are (device, host), swap_in pairs are (host, device).")
    desk.leave(request, keep=False)
    why = "Back on the device, it has a table like any other."
    expect_equal(desk.table(request), [], "the table after the end", why=why)
    desk.check(why)


@task("3.7")
def test_only_what_was_lost_is_copied_back(part: ModuleType) -> None:
    """swap_in shares the blocks that the tree still has, and locks them."""
    for lost, copied in ((1, 2), (0, 1), (3, 4)):
        desk, request = swapped(part, length=14)
        desk.evict(lost)
        swap_in(desk, request, 17, copied)
        expect_equal(len(desk.table(request)), 5, "blocks in the table, with room for 17 tokens")
        expect_equal(request.num_computed_tokens, 14, "num_computed_tokens", why="Nothing is lost.")
        desk.check(LOST)
        expect(desk.compute(request), "no room in a pool with free blocks")
        desk.check(LOST)


@task("3.7")
def test_a_table_comes_back_at_the_cost_of_cached_blocks(part: ModuleType) -> None:
    """swap_in evicts what is missing, as allocate does, and no more."""
    desk, request = swapped(part, caching=True)
    assert desk.tree is not None
    desk.evict(2)
    desk.file(B[:20])
    swap_in(desk, request, 16, copied=3)
    expect_equal(len(desk.table(request)), 4, "blocks in the table, with room for 16 tokens")
    why = "3 blocks of 8 were free, 5 cached and not in use; 4 were needed."
    expect_equal(desk.tree.num_blocks, 4, "blocks that are still cached", why=why)


@task("3.7")
def test_what_others_filed_beyond_is_not_taken(part: ModuleType) -> None:
    """swap_in shares no more than the request had computed, though the tree has more of its tokens."""
    desk = CacheDesk(part, num_host_blocks=4)
    desk.file(A[:4])
    request = desk.admit(A[:14])
    desk.compute(request, 1)
    desk.cache.swap_out(request)
    request.status = RequestStatus.SWAPPED
    desk.carry_out()
    desk.file(A[:12])
    swap_in(desk, request, 7, copied=1)
    expect_equal(len(desk.table(request)), 2, "blocks in the table, with room for 7 tokens")
    desk.check("The rest is computed again, from num_computed_tokens on, into blocks of its own.")


@task("3.7")
def test_a_full_host_changes_nothing(part: ModuleType) -> None:
    """swap_out without room for the whole table returns False; no move is promised."""
    for caching in (False, True):
        desk = CacheDesk(part, num_host_blocks=2, caching=caching)
        if caching:
            desk.file(A[:8])
        request = desk.admit(A[:10])
        desk.compute(request)
        before = desk.holdings()
        got = desk.cache.swap_out(request)
        expect_equal(got, False, "what swap_out returned for 3 blocks onto 2", why=ALL_OR_NONE)
        expect_equal(desk.holdings(), before, "the state after swap_out said no", why=ALL_OR_NONE)
        moves = desk.cache.take_moves()
        expect_equal(moves, ([], [], []), "moves that were promised", why=ALL_OR_NONE)
        expect(desk.compute(request), "the request cannot go on after swap_out said no")
        desk.check(ALL_OR_NONE)


@task("3.7")
def test_a_full_device_changes_nothing(part: ModuleType) -> None:
    """swap_in without room returns False: still on the host, nothing locked, nothing evicted."""
    desk, request = swapped(part)
    desk.compute(desk.admit(B[:19]))
    desk.compute(desk.admit([0]))
    before = desk.holdings()
    got = desk.cache.swap_in(request, 11)
    why = f"{ALL_OR_NONE} Cached blocks that it will use itself are no room for the others."
    what = "what swap_in returned: 2 blocks cached, 1 more needed, no other block free or evictable"
    expect_equal(got, False, what, why=why)
    expect_equal(desk.holdings(), before, "the state after swap_in said no", why=why)
    expect_equal(desk.cache.take_moves(), ([], [], []), "moves that were promised", why=ALL_OR_NONE)
    desk.check(why)


@task("3.7")
def test_swap_in_keeps_the_reserve(part: ModuleType) -> None:
    """swap_in leaves keep_free blocks, as allocate does."""
    desk, request = swapped(part, caching=False)
    why = "The watermark holds for a request that comes back too."
    got = desk.cache.swap_in(request, 11, keep_free=6)
    expect_equal(got, False, "3 blocks of 8 that may be had, with 6 to be kept", why=why)
    got = desk.cache.swap_in(request, 11, keep_free=5)
    expect_equal(got, True, "3 blocks of 8 that may be had, with 5 to be kept", why=why)


@task("3.7")
def test_a_swapped_request_that_ends_leaves_the_host(part: ModuleType) -> None:
    """free gives back the host blocks of a swapped-out request."""
    desk, request = swapped(part)
    desk.cache.free(request)
    why = "An abort finds a request wherever it stands: on the host its blocks leak as well."
    expect_equal(desk.blocks.num_free_host, 4, "free host blocks", why=why)
    desk.check(why)


@task("3.7")
def test_any_script_of_swaps(part: ModuleType) -> None:
    """Whatever goes to the host and comes back: content, references and both pools stay right."""
    run_machine(SwapMachine, part, runs=70, steps=25)
