"""Task 3.5, siblings: a request with `fork_of` starts on the blocks of the other one's prompt."""

from types import ModuleType

from grader.kit import expect, expect_equal, note, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.guards import guarded_desk

A = list(range(1, 21))

SHARE = "The sibling has computed the prompt: share its blocks, and compute only the last token."
COPY = "A block that another request reads is copied before this one writes to it."


def siblings(part: ModuleType, length: int, *, caching: bool) -> tuple[CacheDesk, list]:
    """A request that has computed its prompt, whose whole blocks are cached as well, and its fork."""
    desk = CacheDesk(part, caching=caching)
    if caching:
        desk.file(A[: length // 4 * 4])
    first = desk.admit(A[:length])
    desk.compute(first)
    return desk, [first, desk.admit(A[:length], fork_of=first)]


@task("3.5")
def test_a_fork_computes_one_token(part: ModuleType) -> None:
    """A fork has all blocks of its sibling's prompt, and all but one token computed."""
    for caching in (False, True):
        for length in (1, 4, 5, 6, 8, 9):
            desk, (first, fork) = siblings(part, length, caching=caching)
            expect_equal(fork.num_computed_tokens, length - 1, "num_computed_tokens", why=SHARE)
            table = desk.table(first)[: -(-length // 4)]
            expect_equal(
                desk.table(fork), table, f"the fork's table, prompt of {length}", why=SHARE
            )
            desk.check(SHARE)


@task("3.5")
def test_a_fork_writes_into_a_copy(part: ModuleType) -> None:
    """Making room for the fork's last prompt token copies the block where it goes, and only that."""
    for caching in (False, True):
        for length in (1, 4, 5, 8):
            desk, (first, fork) = siblings(part, length, caching=caching)
            before, whole = desk.table(first), (length - 1) // 4
            expect(
                desk.cache.allocate(fork, length), "no room for a copy in a pool with free blocks"
            )
            _, _, copies = desk.carry_out()
            fresh = desk.table(fork)[whole]
            expect(
                fresh != before[whole], "the fork would write into its sibling's block", why=COPY
            )
            expect_equal(copies, [(before[whole], fresh)], "copies that were promised", why=COPY)
            expect_equal(desk.table(fork)[:whole], before[:whole], "blocks before it", why=SHARE)
            expect_equal(desk.table(first), before, "the sibling's table", why=COPY)
            desk.check(COPY)


@task("3.5")
def test_whoever_writes_first_copies(part: ModuleType) -> None:
    """Whichever sibling writes first gets the copy; both go on apart, and the last needs none."""
    for order in ((0, 1), (1, 0)):
        desk, requests = siblings(part, 6, caching=True)
        for turn, copies in zip(order, (1, 0), strict=True):
            request = requests[turn]
            expect(
                desk.cache.allocate(request, request.num_tokens),
                "no room in a pool with free blocks",
            )
            promised = len(desk.carry_out()[2])
            what = f"blocks copied for {request.request_id}"
            expect_equal(promised, copies, what, why=COPY + " The last reader needs no copy.")
        written = [desk.table(request)[1] for request in requests]
        expect(written[0] != written[1], "both siblings write into one block", why=COPY)


@task("3.5")
def test_siblings_go_on_apart(part: ModuleType) -> None:
    """What siblings write after the prompt is their own, in any order of their steps."""
    desk, (first, fork) = siblings(part, 6, caching=True)
    for request in (fork, first, first, fork, fork, first):
        expect(desk.compute(request), "no room in a pool with free blocks")
        desk.check(COPY)


@task("3.5")
def test_a_copied_block_is_not_kept_from_eviction(part: ModuleType) -> None:
    """A fork locks only what stays in its table, not a cached block that it copies to write."""
    desk = CacheDesk(part)
    desk.file(A[:8])
    first = desk.admit(A[:8])
    desk.compute(first)
    fork = desk.admit(A[:8], fork_of=first)
    expect(desk.compute(fork), "no room in a pool with free blocks")
    desk.check("The last prompt token's block will be written to: match only the blocks before it.")


@task("3.5")
def test_a_fork_locks_its_prefix_itself(part: ModuleType) -> None:
    """What a fork shares stays protected when its sibling goes."""
    desk, guard = guarded_desk(part)
    desk.file(A[:8])
    first = desk.admit(A[:9])
    desk.compute(first)
    desk.admit(A[:9], fork_of=first)
    guard.forget_first_lock()
    note("# if r0 were gone now:")
    why = "The sibling's lock goes with it: a fork locks the prompt's cached blocks like anyone."
    expect_equal(guard.num_evictable, 0, "evictable blocks of the fork's two cached ones", why=why)


@task("3.5")
def test_a_fork_takes_only_the_prompt(part: ModuleType) -> None:
    """A sibling that has generated on has blocks that are none of the fork's business."""
    desk = CacheDesk(part, caching=False)
    first = desk.admit(A[:4])
    for _ in range(6):
        desk.compute(first)
    fork = desk.admit(A[:4], fork_of=first)
    why = "The blocks after the prompt hold the sibling's own tokens."
    expect_equal(desk.table(fork), desk.table(first)[:1], "the fork's table", why=why)
    expect(desk.compute(fork), "no room in a pool with free blocks")
    desk.check(why)


@task("3.5")
def test_a_fork_without_room_for_its_copy_waits(part: ModuleType) -> None:
    """A copy needs a free block like any other: without one allocate returns False."""
    desk = CacheDesk(part, num_blocks=3, caching=False)
    first = desk.admit(A[:6])
    desk.compute(first)
    fork = desk.admit(A[:6], fork_of=first)
    why = (
        "Count the copy with the blocks that are missing, keep_free too, before anything is taken."
    )
    before = desk.holdings()
    got = desk.cache.allocate(fork, 6, keep_free=1)
    expect_equal(got, False, "room for a copy when 1 block is free and 1 is to be kept", why=why)
    got = desk.cache.allocate(fork, 9)
    expect_equal(got, False, "room for a copy and one more block when 1 is free", why=why)
    expect_equal(desk.holdings(), before, "the state after allocate had returned False", why=why)
    expect_equal(desk.cache.allocate(fork, 6), True, "room for the copy alone", why=why)


@task("3.5")
def test_a_fork_of_an_unready_sibling_starts_alone(part: ModuleType) -> None:
    """While the sibling lacks some of its prompt, a fork gets what the tree has, like anyone."""
    desk = CacheDesk(part)
    desk.file(A[:4])
    first = desk.admit(A[:9])
    desk.compute(first, 3)
    fork = desk.admit(A[:9], fork_of=first)
    why = "Blocks that are not computed yet hold no K and V."
    expect_equal(desk.table(fork), desk.table(first)[:1], "the fork's table", why=why)
    expect_equal(fork.num_computed_tokens, 4, "num_computed_tokens", why=why)
    desk.check(why)


@task("3.5")
def test_a_fork_of_a_prompt_in_flight_starts_alone(part: ModuleType) -> None:
    """Until the result of the sibling's prompt has come, a fork gets what the tree has."""
    desk = CacheDesk(part)
    desk.file(A[:8])
    first = desk.admit(A[:9])
    desk.launch(first, 1)
    fork = desk.admit(A[:9], fork_of=first)
    why = "A step in flight may still fail: its tokens are computed when they are settled."
    expect_equal(desk.table(fork), desk.table(first)[:2], "the fork's table", why=why)
    expect_equal(fork.num_computed_tokens, 8, "num_computed_tokens", why=why)
    desk.check(why)
