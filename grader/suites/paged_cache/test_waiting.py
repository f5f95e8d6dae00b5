"""Task 3.9: a request that lacks a block which another is about to fill."""

from types import ModuleType

from grader.kit import expect, expect_equal, task
from grader.suites.paged_cache import chunks
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from grader.suites.paged_cache.pending import (
    GIVEN_UP,
    HOST,
    IN_FLIGHT,
    NOTHING_GAINED,
    WAIT,
    A,
    B,
    computing,
    expect_pending,
)
from yaie.core.request import RequestStatus


@task("3.9")
def test_a_look_changes_nothing(part: ModuleType) -> None:
    """is_pending answers the same when it is asked again, and leaves tables, tree and counts alone."""
    desk = computing(part, 4, 12)
    late = desk.request(A[:12])
    before = desk.holdings()
    if not desk.cache.is_pending(late):
        return  # another test says so
    why = f"{IN_FLIGHT} A look ends nothing: only `commit`, `free` and `swap_out` take a note away."
    expect_pending(desk, late, True, why, "when it is asked a second time")
    desk.expect_unchanged(before, "two looks", why)


@task("3.9")
def test_who_lacks_a_block_in_the_making_waits(part: ModuleType) -> None:
    """While the next block that a request lacks is being computed, that request is pending."""
    for cached in (0, 4):
        desk = computing(part, cached, 12)
        for prompt in (A[:12], A[:9], [*A[:8], *B[:3]]):
            expect_pending(desk, prompt, True, WAIT)


@task("3.9")
def test_who_lacks_another_block_does_not_wait(part: ModuleType) -> None:
    """A request that shares no whole block with those that are computed is not pending."""
    desk = computing(part, 4, 12)
    for prompt in ([*A[:7], *B[:5]], [*B[:4], *A[4:12]], [*B[:4], *A[:4], 0], B[:9]):
        expect_pending(desk, prompt, False, NOTHING_GAINED)


@task("3.9")
def test_who_ends_with_the_block_does_not_wait(part: ModuleType) -> None:
    """A request whose last token fills the block in the making cannot use it, and is not pending."""
    desk = computing(part, 4, 12)
    why = "Its last token is its own to compute: it cannot use the second block whole."
    expect_pending(desk, A[:8], False, why)


@task("3.9")
def test_each_that_computes_may_be_the_one(part: ModuleType) -> None:
    """Of several requests with chunks, any may compute the block that is missing."""
    desk = CacheDesk(part)
    for prompt in (B[:5], A[:9], B[10:15]):
        desk.cache.allocate(desk.admit(prompt), len(prompt))
    why = "The first note in `_computing` is not the only one: say no when none of them fits."
    for prompt in (B[:6], A[:6], B[10:16]):
        expect_pending(desk, prompt, True, why, "while r0, r1 and r2 compute their prompts")


@task("3.9")
def test_equal_blocks_after_different_beginnings_are_different(part: ModuleType) -> None:
    """A block's K and V depend on all tokens before it: the same four tokens alone are not enough."""
    desk = CacheDesk(part)
    desk.file(A[:4])
    desk.file(B[:4])
    desk.cache.allocate(desk.admit([*A[:4], *A[4:9]]), 9)
    why = "Compare the prefix up to the block's end, not the block alone."
    expect_pending(desk, [*B[:4], *A[4:9]], False, why)
    expect_pending(desk, [*A[:4], *A[4:8], 0], True, WAIT)


@task("3.9")
def test_the_same_tokens_in_another_order_are_others(part: ModuleType) -> None:
    """Two blocks of the same tokens, and two beginnings of the same, differ if the order does."""
    why = "Compare the tokens in their order: a sum, a set or a sorted copy forgets it."
    turned = [A[1], A[0], *A[2:4]]
    desk = CacheDesk(part)
    desk.file(A[:4])
    desk.file(turned)
    desk.cache.allocate(desk.admit(A[:9]), 9)
    expect_pending(desk, [*A[:4], A[5], A[4], *A[6:9]], False, why)
    expect_pending(desk, [*turned, *A[4:9]], False, why)


@task("3.9")
def test_a_block_is_pending_until_its_result_is_filed(part: ModuleType) -> None:
    """Steps for others, planned while a chunk is in flight, do not end the waiting for it."""
    desk = CacheDesk(part)
    first = desk.admit(A[:12])
    desk.launch(first, 12)
    late, longer = desk.request(A[:12]), desk.request([*A[:12], *B[:3]])
    for turn in range(2):
        desk.compute(desk.admit(B[4 * turn : 4 * turn + 3]), commit=True)
        for request in (late, longer):
            expect_pending(desk, request, True, IN_FLIGHT, "before the result has come")
    desk.settle(first, commit=True)
    for request in (late, longer):
        expect_pending(desk, request, False, "It is cached now.", "once the result is filed")
    expect_equal(desk.cache.cached_tokens(longer), 12, "cached tokens once the result is filed")


@task("3.9")
def test_two_chunks_in_flight_are_both_waited_for(part: ModuleType) -> None:
    """A request that plans its second chunk while its first is in flight is about to fill both."""
    chunks.has_two_in_flight(part)


@task("3.9")
def test_what_is_given_up_is_not_waited_for(part: ModuleType) -> None:
    """A request that fails or is preempted with a chunk in flight fills nothing any more."""
    for given_up in ("failed", "been preempted"):
        desk = CacheDesk(part)
        first = desk.admit(A[:12])
        desk.launch(first, 12)
        late = desk.request(A[:12])
        if given_up == "failed":
            desk.leave(first, keep=False)
        else:
            desk.preempt(first)
        expect_pending(desk, late, False, GIVEN_UP, f"after r0 has {given_up}")


@task("3.9")
def test_an_answer_holds_for_its_moment(part: ModuleType) -> None:
    """A request that was pending is none any more once others compute other blocks."""
    desk = CacheDesk(part, num_blocks=12)
    first = desk.admit(A[:12])
    desk.launch(first, 12)
    late = desk.request(A[:12])
    if not desk.cache.is_pending(late):
        return  # another test says so
    desk.leave(first, keep=False)
    desk.launch(desk.admit(B[:12]), 12)
    why = f"{GIVEN_UP} Ask anew at each call: an answer of an earlier one is no answer."
    expect_pending(desk, late, False, why, "after r0 has failed, while r2 computes other blocks")


@task("3.9")
def test_what_is_filed_and_lost_is_not_waited_for(part: ModuleType) -> None:
    """Once a request has ended, no other waits for what it computed, even if that is evicted."""
    desk = CacheDesk(part)
    first = desk.admit(A[:12])
    desk.launch(first, 12)
    desk.settle(first, commit=True)
    desk.leave(first)
    if desk.misfits():
        return  # task 3.6's matter
    desk.evict(3)
    expect_pending(desk, A[:12], False, GIVEN_UP, "after r0's blocks were evicted")


@task("3.9")
def test_who_else_computes_the_block_is_still_waited_for(part: ModuleType) -> None:
    """Of two that compute one block, one gives up: the block is pending until the other does too."""
    desk = CacheDesk(part)
    both = [desk.admit(A[:9]), desk.admit([*A[:8], *B[:3]])]
    for request in both:
        desk.launch(request, request.num_tokens)
    late = desk.request(A[:12])
    expect_pending(desk, late, True, WAIT, "while r0 and r1 compute its blocks")
    desk.leave(both[0], keep=False)
    why = "Note what each request computes: one that leaves takes only its own note with it."
    expect_pending(desk, late, True, why, "after r0 has failed")
    desk.leave(both[1], keep=False)
    expect_pending(desk, late, False, GIVEN_UP, "after both have failed")


@task("3.9")
def test_who_may_not_reuse_a_prefix_does_not_wait_for_one(part: ModuleType) -> None:
    """A request whose may_reuse_prefix is False is not pending: it computes the block in any case."""
    desk = computing(part, 0, 12)
    why = (
        "r0 computes the block that r1 lacks, but r1 may not use it (`may_reuse_prefix`): it computes "
        "all of its tokens itself, and waiting would only delay it."
    )
    expect_pending(desk, desk.request(A[:12], may_reuse=False), False, why)


@task("3.9")
def test_without_a_tree_nobody_waits(part: ModuleType) -> None:
    """Given no tree, what another computes is not found later either."""
    desk = CacheDesk(part, caching=False)
    desk.cache.allocate(desk.admit(A[:12]), 12)
    why = "Without a tree nothing is filed, so what r0 computes is never found, however long one waits."
    expect_pending(desk, A[:12], False, why)


@task("3.9")
def test_what_is_filed_is_compared_no_more(part: ModuleType) -> None:
    """is_pending compares a prompt with chunks that are not filed yet, and with no others."""
    chunks.is_filed(part)


@task("3.9")
def test_a_fork_waits_for_its_siblings_prompt(part: ModuleType) -> None:
    """A fork is pending while its sibling runs and lacks some of the prompt, and no longer."""
    for caching in (True, False):
        desk = CacheDesk(part, caching=caching)
        first = desk.request(A[:9])
        fork = desk.request(A[:9], fork_of=first)
        why = "A fork that waits for a request that does not run may wait for ever."
        expect_pending(desk, fork, False, why, "before r0 runs")
        desk.cache.admit(first)
        first.status = RUNNING
        desk.compute(first, 5, commit=True)
        why = (
            "r0 runs and lacks 4 tokens of its prompt. Once it has them, the fork shares its blocks and "
            "computes one token."
        )
        expect_pending(desk, fork, True, why, "after 5 of r0's 9 tokens")
        first.status = RequestStatus.SWAPPED
        desk.note_change("r0 was moved to the host")
        expect_pending(desk, fork, False, HOST, "while r0 is on the host")
        first.status = RUNNING
        desk.note_change("r0 runs again")
        desk.compute(first, 4, commit=True)
        why = "r0 has its whole prompt: the fork can share its blocks now."
        expect_pending(desk, fork, False, why, "after all of them")


@task("3.9")
def test_a_fork_waits_for_others_as_well(part: ModuleType) -> None:
    """A fork whose sibling does not run is asked like any other request."""
    desk = CacheDesk(part)
    fork = desk.request(A[:9], fork_of=desk.request(A[:9]))
    expect_pending(desk, fork, False, NOTHING_GAINED, "while no request computes")
    desk.cache.allocate(desk.admit([*A[:8], *B[:3]]), 11)
    why = "The sibling is one reason to wait, and the missing block another: go on to that one."
    expect_pending(desk, fork, True, why, "while r2 computes its first two blocks, and r0 waits")


@task("3.9")
def test_a_fork_waits_for_the_result_of_its_siblings_prompt(part: ModuleType) -> None:
    """A prompt that is in flight is not computed yet: its fork waits for the result."""
    for caching in (True, False):
        desk = CacheDesk(part, caching=caching)
        first = desk.admit(A[:9])
        fork = desk.request(A[:9], fork_of=first)
        expect(desk.launch(first, 9), "no room in an empty pool")
        why = "The step may still fail: count num_settled_tokens, not num_computed_tokens."
        expect_pending(desk, fork, True, why, "with r0's whole prompt in flight")
        desk.settle(first, commit=True)
        expect_pending(desk, fork, False, why, "once its result has come")
