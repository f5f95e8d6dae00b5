"""Task 3.10: tables that go to the host and come back."""

from types import ModuleType
from typing import NoReturn

from grader.kit import expect, expect_equal, run_machine, task
from grader.kit.script import current_script, resume_script
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.cache_machine import SwapMachine
from grader.suites.paged_cache.guards import guarded_desk
from grader.suites.paged_cache.pending import GIVEN_UP, expect_pending
from grader.suites.paged_cache.swapping import ALL_OR_NONE, BEYOND, LOST, A, B, swap_in, swapped
from yaie.core.errors import OutOfBlocksError
from yaie.core.request import RequestStatus

UNLOCKED = "What swap_in has locked to see whether it fits is unlocked if it does not."
NOT_EVICTED = (
    "Nothing is evicted before it is known that all fits, and the blocks that are to be shared are "
    "locked before that: here they were evicted, and it could have used them."
)


@task("3.10")
def test_a_swapped_table_leaves_the_device(part: ModuleType) -> None:
    """swap_out gives the device blocks back; what was filed stays cached, unlocked, for anyone."""
    desk, request = swapped(part)
    expect_equal(desk.table(request), [], "the table on the device")
    expect_equal(desk.blocks.num_swapped_blocks("r0"), 3, "blocks on the host")
    desk.check()


@task("3.10")
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


@task("3.10")
def test_only_what_was_lost_is_copied_back(part: ModuleType) -> None:
    """swap_in shares the blocks that the tree still has, and locks them."""
    for lost, copied in ((1, 2), (0, 1), (3, 4)):
        desk, request = swapped(part, length=14)
        desk.evict(lost)
        swap_in(desk, request, 17, copied)
        expect_equal(len(desk.table(request)), 5, "blocks in the table, with room for 17 tokens")
        expect_equal(request.num_computed_tokens, 14, "num_computed_tokens", why="Nothing is lost.")
        why = "It says what the first admission found: a return from the host is no admission."
        expect_equal(request.num_cached_tokens, 12, "num_cached_tokens", why=why)
        desk.check(LOST)
        expect(desk.compute(request), "no room in a pool with free blocks")
        desk.check(LOST)


@task("3.10")
def test_a_block_that_the_last_computed_token_fills_is_shared(part: ModuleType) -> None:
    """A table whose blocks are all full and all cached comes back without a copy."""
    desk = CacheDesk(part, num_host_blocks=4)
    request = desk.admit(A[:12])
    desk.compute(request, commit=True)
    assert desk.tree is not None
    if desk.tree.all_blocks() != desk.table(request) or desk.misfits():
        return  # another task's matter
    desk.cache.swap_out(request)
    request.status = RequestStatus.SWAPPED
    desk.carry_out()
    why = (
        "12 tokens are computed, and 13 known: three blocks are full. That one token must be left to "
        "compute holds for what is known, not for what is computed."
    )
    swap_in(desk, request, 13, copied=0, why=why)


@task("3.10")
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


@task("3.10")
def test_what_comes_back_from_the_host_is_filed_again(part: ModuleType) -> None:
    """The next commit files the blocks that the tree had lost, as it would have at first."""
    desk, request = swapped(part, length=14)
    assert desk.tree is not None
    desk.evict(2)
    swap_in(desk, request, 15, copied=3)
    desk.cache.commit(request)
    why = "Remember as filed what was shared, not what was computed: the rest is in no tree yet."
    cached = desk.tree.peek(request.token_ids, 3)
    expect_equal(cached, desk.table(request)[:3], "the tree's blocks for its tokens", why=why)


@task("3.10")
def test_the_prefix_is_locked_until_the_table_has_left(part: ModuleType) -> None:
    """swap_out drops the table before it unlocks the path."""
    desk, guard = guarded_desk(part, num_host_blocks=4)
    desk.file(A[:8])
    request = desk.admit(A[:10])
    desk.compute(request)
    guard.watched = lambda: desk.table(request)
    desk.cache.swap_out(request)
    why = "Unlocked first, the blocks may be evicted while a table still names them."
    expect_equal(guard.exposed, [], "blocks that were unlocked in the table", why=why)


@task("3.10")
def test_a_table_that_drafts_made_longer_comes_back_whole(part: ModuleType) -> None:
    """swap_in asks for room for all blocks on the host, even if fewer tokens are asked for."""
    desk = CacheDesk(part, num_blocks=3, num_host_blocks=3, caching=False)
    request = desk.admit(A[:3])
    desk.compute(request)
    desk.cache.allocate(request, 9)  # its next token and five drafts, which are rejected
    expect_equal(
        desk.cache.swap_out(request), True, "what swap_out returned with room for 3 blocks"
    )
    request.status = RequestStatus.SWAPPED
    desk.carry_out()
    desk.compute(desk.admit(B[:2]))
    before = desk.holdings()
    why = (
        "The table has 3 blocks on the host and 2 are free: what is missing is the longer of both."
    )
    got = desk.cache.swap_in(request, 4)
    expect_equal(got, False, "what swap_in returned for 3 blocks with 2 free", why=why)
    desk.expect_unchanged(before, "swap_in said no", why)


@task("3.10")
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
    swap_in(desk, request, 7, copied=1, why=BEYOND)
    expect_equal(len(desk.table(request)), 2, "blocks in the table, with room for 7 tokens")
    desk.check(BEYOND)


@task("3.10")
def test_a_full_host_changes_nothing(part: ModuleType) -> None:
    """swap_out without room for the whole table returns False; no move is promised."""
    for caching, cached in ((False, 0), (True, 8), (True, 0)):
        desk = CacheDesk(part, num_host_blocks=2, caching=caching)
        if cached:
            desk.file(A[:cached])
        request = desk.admit(A[:10])
        desk.compute(request)
        before = desk.holdings()
        got = desk.cache.swap_out(request)
        expect_equal(got, False, "what swap_out returned for 3 blocks onto 2", why=ALL_OR_NONE)
        desk.expect_unchanged(before, "swap_out said no", ALL_OR_NONE)
        moves = desk.cache.take_moves()
        expect_equal(moves, ([], [], []), "moves that were promised", why=ALL_OR_NONE)
        expect(desk.compute(request), "the request cannot go on after swap_out said no")
        desk.check(ALL_OR_NONE)


@task("3.10")
def test_a_full_device_changes_nothing(part: ModuleType) -> None:
    """swap_in without room returns False: still on the host, nothing locked, nothing evicted."""
    desk, request = swapped(part)
    desk.compute(desk.admit(B[:19]))
    desk.compute(desk.admit([0]))
    before = desk.holdings()
    why = (
        "Cached blocks that it will use itself are no room for the others: lock first, then count."
    )
    try:
        got = desk.cache.swap_in(request, 11)
    except OutOfBlocksError as error:
        fail_without_room(part, desk, error)
    what = "what swap_in returned: 2 blocks cached, 1 more needed, no other block free or evictable"
    expect_equal(got, False, what, why=why)
    evicted = desk.tree is not None and desk.tree.num_blocks < before["blocks in the tree"]
    why = NOT_EVICTED if evicted else UNLOCKED
    desk.expect_unchanged(before, "swap_in said no", why)
    expect_equal(desk.cache.take_moves(), ([], [], []), "moves that were promised", why=ALL_OR_NONE)
    desk.check()


def fail_without_room(part: ModuleType, desk: CacheDesk, error: OutOfBlocksError) -> NoReturn:
    """swap_in has raised where it lacks one block beside the two that it shares."""
    script = current_script()
    script.settle()
    is_asked = refuses_with_a_full_device(part)
    resume_script(script)
    why = (
        "Before the call 2 blocks could be had, and both are r0's own prefix. Once they are locked, "
        "none can, and one more is needed: lock first, then count the room, and answer False."
    )
    otherwise = "Where there is no room the answer is False: ask before you take."
    expect(False, f"swap_in(r0, 11) raises: {error}", why=why if is_asked else otherwise)
    raise error


def refuses_with_a_full_device(part: ModuleType) -> bool:
    """Whether swap_in answers False where nothing is cached and nothing free."""
    try:
        desk, request = swapped(part, caching=False)
        desk.compute(desk.admit(list(range(40, 71))))
        return desk.cache.swap_in(request, 11) is False
    except Exception:  # noqa: BLE001, a part may raise anything
        return False


@task("3.10")
def test_swap_in_keeps_the_reserve(part: ModuleType) -> None:
    """swap_in leaves keep_free blocks, as allocate does."""
    desk, request = swapped(part, caching=False)
    why = "The watermark holds for a request that comes back too."
    got = desk.cache.swap_in(request, 11, keep_free=6)
    expect_equal(got, False, "3 blocks of 8 that may be had, with 6 to be kept", why=why)
    got = desk.cache.swap_in(request, 11, keep_free=5)
    expect_equal(got, True, "3 blocks of 8 that may be had, with 5 to be kept", why=why)


@task("3.10")
def test_a_swapped_request_that_ends_leaves_the_host(part: ModuleType) -> None:
    """free gives back the host blocks of a swapped-out request, whether it failed or not."""
    for keep in (True, False):
        desk, request = swapped(part)
        desk.cache.free(request, keep=keep)
        why = "A request may be aborted in any state: on the host its blocks leak as well."
        expect_equal(desk.blocks.num_free_host, 4, "free host blocks", why=why)
        desk.check()


@task("3.10")
def test_who_goes_to_the_host_is_not_waited_for(part: ModuleType) -> None:
    """A request that is swapped out with a chunk in flight fills nothing any more."""
    desk = CacheDesk(part, num_host_blocks=4)
    first = desk.admit(A[:12])
    desk.launch(first, 12)
    late = desk.request(A[:12])
    expect_equal(desk.cache.swap_out(first), True, "what swap_out returned with room for 3 blocks")
    first.status = RequestStatus.SWAPPED
    expect_pending(desk, late, False, GIVEN_UP, "after r0 has gone to the host")


@task("3.10")
def test_any_script_of_swaps(part: ModuleType) -> None:
    """Whatever goes to the host and comes back: content, references and both pools stay right."""
    run_machine(SwapMachine, part, runs=60, steps=25)
