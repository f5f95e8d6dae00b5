"""Task 3.8: what a request leaves when it goes."""

from functools import partial
from types import ModuleType

from grader.kit import expect_equal, run_machine, task
from grader.suites.paged_cache.cache_desk import CacheDesk, moved_by_hand_or_by_itself
from grader.suites.paged_cache.cache_machine import FileMachine
from grader.suites.paged_cache.filed import OWN, SETTLED, A, B, found
from grader.suites.paged_cache.guards import guarded_desk
from yaie.core.request import Request, RequestStatus

WHOEVER = "Whatever a request has been through, the next one with its tokens finds them."


@task("3.8")
def test_who_leaves_with_a_step_in_flight_files_what_was_settled(part: ModuleType) -> None:
    """free keeps the blocks that have a result, and gives back those that a step in flight writes."""
    desk = CacheDesk(part)
    request = desk.admit(A[:12])
    desk.launch(request, 5)
    desk.launch(request, 7)
    desk.settle(request)
    table = desk.table(request)[:3]
    desk.leave(request)
    expect_equal(found(desk, A[:12]), table[:1], "the tree's blocks for its prompt", why=SETTLED)
    expect_equal(desk.refs(table), [1, 0, 0], "references to its blocks", why=SETTLED)
    desk.check(SETTLED)


@task("3.8")
def test_the_prefix_is_locked_until_the_table_is_gone(part: ModuleType) -> None:
    """free drops the table before it unlocks the path."""
    for keep in (True, False):
        desk, guard = guarded_desk(part)
        request = desk.admit(A[:9])
        desk.compute(request, commit=True)
        guard.watched = partial(desk.table, request)
        desk.leave(request, keep=keep)
        why = "Unlocked first, the blocks may be evicted while a table still names them."
        expect_equal(guard.exposed, [], "blocks that were unlocked in the table", why=why)
        desk.check()


@task("3.8")
def test_a_free_request_leaves_its_blocks_cached(part: ModuleType) -> None:
    """free files what is computed; its full blocks stay cached and evictable, the rest is free."""
    desk = CacheDesk(part)
    request = desk.admit(A[:10])
    desk.compute(request)
    table = desk.table(request)
    desk.leave(request)
    why = "The next request with this prefix finds it; until then it may be evicted."
    expect_equal(found(desk, A[:10]), table[:2], "the tree's blocks for its prompt", why=why)
    expect_equal(desk.refs(table), [1, 1, 0], "references to its blocks", why=OWN)
    desk.check()
    again = desk.admit(A[:10])
    expect_equal(desk.table(again), table[:2], "the table of the next with this prompt", why=why)
    expect_equal(desk.wrong_slots(again), "", "K and V that the next request finds", why=why)


@task("3.8")
def test_a_failed_request_leaves_nothing(part: ModuleType) -> None:
    """free with keep=False files nothing: what a failed request computed is not to be trusted."""
    desk = CacheDesk(part)
    request = desk.admit(A[:10])
    desk.compute(request)
    desk.leave(request, keep=False)
    why = "NaN in the cache would spoil every request that shares the prefix."
    expect_equal(found(desk, A[:10]), [], "the tree's blocks for its prompt", why=why)
    expect_equal(desk.blocks.num_free, 8, "free blocks", why=why)


@task("3.8")
def test_free_leaves_the_counts(part: ModuleType) -> None:
    """free takes back the table and the lock; the counts of the request stay as they are."""
    for keep in (True, False):
        desk = CacheDesk(part)
        desk.file(A[:4])
        request = desk.admit(A[:10])
        desk.compute(request)
        request.num_preemptions = 1
        desk.note_change("r0 was preempted once: num_preemptions = 1")
        desk.leave(request, keep=keep)
        seen = (request.num_computed_tokens, request.num_cached_tokens, request.num_preemptions)
        what = "num_computed_tokens, num_cached_tokens and num_preemptions after free"
        why = "The counts are the scheduler's, which reports them: free takes back what admit took."
        expect_equal(seen, (10, 4, 1), what, why=why)


@task("3.8")
def test_dropped_tokens_are_not_filed(part: ModuleType) -> None:
    """A block that lost tokens at its end, since they came after the one that ends, is not filed."""
    desk = CacheDesk(part)
    request = desk.admit(A[:6])
    for _ in range(3):
        desk.compute(request)
    table = desk.table(request)
    request.drop_last(2)
    desk.note_change("r0 has 7 tokens: the last two were dropped. 8 are computed")
    desk.leave(request)
    why = (
        "The block's last token is known no more, so the block stands for no prefix: "
        "num_settled_tokens leaves out what was dropped."
    )
    what = "references to its two blocks, of which one is full"
    expect_equal(desk.refs(table[:2]), [1, 0], what, why=why)
    desk.check(why)


@task("3.8")
def test_free_is_harmless_without_a_table(part: ModuleType) -> None:
    """free of a request that was never admitted, or is free already, does nothing."""
    desk = CacheDesk(part)
    request = desk.request(A[:10])
    desk.cache.free(request)
    desk.cache.admit(request)
    desk.compute(request)
    desk.cache.free(request)
    before = desk.holdings()
    desk.cache.free(request)
    why = "An abort may come at any time: before admission, after the end, twice."
    desk.expect_unchanged(before, "a second free", why)
    desk.check(why)


@task("3.8")
def test_who_was_preempted_files_what_it_computed(part: ModuleType) -> None:
    """A request that was preempted and came back files its full blocks when it ends."""
    desk = CacheDesk(part)
    request = desk.admit(A[:7])
    desk.compute(request)
    desk.preempt(request)
    desk.cache.admit(request)
    request.status = RequestStatus.RUNNING
    desk.compute(request)
    expect_filed_at_the_end(desk, request)


@task("3.8")
def test_a_fork_files_what_it_computed(part: ModuleType) -> None:
    """A fork files its full blocks when it ends, those that its sibling does not have."""
    desk = CacheDesk(part)
    first = desk.admit(A[:7])
    desk.compute(first, commit=True)
    fork = desk.admit(A[:7], fork_of=first)
    for _ in range(2):
        if fork.num_computed_tokens < 8:
            desk.compute(fork)
    expect_filed_at_the_end(desk, fork)


def expect_filed_at_the_end(desk: CacheDesk, request: Request) -> None:
    """A request ends that has computed 8 tokens, two blocks, of which the tree has the first."""
    before = len(found(desk, request.token_ids))
    if desk.misfits() or before != 1 or request.num_computed_tokens != 8:
        return  # another task's matter
    desk.leave(request)
    name, got = request.request_id, len(found(desk, request.token_ids))
    why = f"free({name}) has filed none of its blocks: `free` commits. " * (got == before)
    what = f"blocks in the tree of the 8 tokens that {name} has computed, after free({name})"
    expect_equal(got, 2, what, why=why + WHOEVER)


@task("3.8")
def test_all_who_leave_file_what_they_computed(part: ModuleType) -> None:
    """A request that was preempted before, and a fork, leave their full blocks cached like any other."""
    desk = CacheDesk(part, num_blocks=12)
    again = desk.admit(A[:6])
    desk.compute(again)
    desk.preempt(again)
    desk.cache.admit(again)
    again.status = RequestStatus.RUNNING
    desk.compute(again)
    first = desk.admit(B[:9])
    desk.compute(first, commit=True)
    fork = desk.admit(B[:9], fork_of=first)
    for request in (again, fork):
        while request.num_computed_tokens < 12 and desk.compute(request):
            pass
        if desk.misfits():
            return  # another task's matter
        desk.leave(request)
        name = request.request_id
        got = len(found(desk, request.token_ids))
        expect_equal(
            got, 3, f"blocks cached of the 12 tokens that {name} has computed", why=WHOEVER
        )


def leave_from_the_host(part: ModuleType, *, by_itself: bool) -> None:
    """A request with its table on the host ends. by_itself: brought there by its own swap_out."""
    swapped, over = RequestStatus.SWAPPED, RequestStatus.FINISHED
    for keep, status in ((True, swapped), (False, swapped), (True, over)):
        desk = CacheDesk(part, num_host_blocks=4)
        if by_itself:
            request = desk.admit(A[:6])
            desk.compute(request)
            desk.cache.swap_out(request)
        else:
            request = desk.request(A[:6])
            desk.blocks.allocate("r0", 2)
            desk.blocks.swap_out("r0")
            desk.note_change("r0 has no table any more, but 2 blocks on the host")
        request.status = status
        desk.leave(request, keep=keep)
        why = (
            "A request may be aborted in any state: on the host its blocks leak as well. Ask the block "
            "manager what it has there."
        )
        what = f"free host blocks of 4 after free(r0, keep={keep}), with r0 {status.value}"
        expect_equal(desk.blocks.num_free_host, 4, what, why=why)


@task("3.8")
def test_who_leaves_from_the_host_gives_back_its_blocks(part: ModuleType) -> None:
    """free of a request whose table is on the host drops it there, whether the request failed or not."""
    moved_by_hand_or_by_itself(partial(leave_from_the_host, part))


@task("3.8")
def test_any_script_of_commits_and_ends(part: ModuleType) -> None:
    """Whatever requests come, compute and go: the cache is right, and every block is accounted for."""
    run_machine(FileMachine, part, runs=60, steps=20)
