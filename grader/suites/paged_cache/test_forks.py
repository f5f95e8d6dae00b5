"""Task 3.7: a request with `fork_of` starts on the blocks of the other one's prompt."""

from functools import partial
from types import ModuleType

from grader.kit import expect_equal, note, task
from grader.suites.paged_cache.cache_desk import CacheDesk, moved_by_hand_or_by_itself
from grader.suites.paged_cache.guards import guarded_desk
from yaie.core.request import RequestStatus

A = list(range(1, 21))
B = list(range(21, 41))

SHARE = "The sibling has computed the prompt: share its blocks, and compute only the last token."
CACHED = (
    "What a fork shares it need not compute: those tokens count as cached, as with any other request "
    "that is admitted for the first time."
)


def siblings(part: ModuleType, length: int, *, caching: bool) -> tuple[CacheDesk, list]:
    """A request that has computed its prompt, all of it cached but the last block, and its fork."""
    desk = CacheDesk(part, caching=caching)
    if caching:
        desk.file(A[: (length - 1) // 4 * 4])
    first = desk.admit(A[:length])
    desk.compute(first)
    return desk, [first, desk.admit(A[:length], fork_of=first)]


@task("3.7")
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


@task("3.7")
def test_what_a_fork_shares_counts_as_cached(part: ModuleType) -> None:
    """admit returns num_computed_tokens of a fork too, and sets num_cached_tokens to it."""
    for caching in (False, True):
        desk, (first, _) = siblings(part, 6, caching=caching)
        fork = desk.request(A[:6], first)
        expect_equal(desk.cache.admit(fork), 5, "what admit returned", why=SHARE)
        expect_equal(fork.num_cached_tokens, 5, "num_cached_tokens of the fork", why=CACHED)


@task("3.7")
def test_a_fork_does_not_lock_the_block_that_it_will_write(part: ModuleType) -> None:
    """The last prompt token's block comes from the sibling, even if the tree has such a block."""
    desk = CacheDesk(part)
    desk.file(A[:4])
    first = desk.admit(A[:8])
    desk.compute(first)
    desk.file(A[:8])
    fork = desk.admit(A[:8], fork_of=first)
    why = (
        "The fork's next token, number 7, goes to entry 1, into a copy. What it locked there "
        "in the tree would stay locked without being in its table: match only the blocks before it."
    )
    expect_equal(desk.table(fork), desk.table(first)[:2], "the fork's table", why=why)
    assert desk.tree is not None
    expect_equal(desk.tree.num_evictable, 1, "evictable blocks of the tree's two", why=why)
    desk.check(why)


@task("3.7")
def test_a_fork_takes_what_it_did_not_lock(part: ModuleType) -> None:
    """What the sibling has filed of the prompt, and the fork has not locked, comes from its table."""
    desk = CacheDesk(part)
    desk.file(A[:8])
    first = desk.request(A[:8])
    first.token_ids += B[:3]
    first.num_preemptions = 1
    desk.note_change("r0 has 11 tokens. It was preempted: num_preemptions = 1")
    desk.cache.admit(first)
    first.status = RequestStatus.RUNNING
    fork = desk.admit(A[:8], fork_of=first)
    why = (
        "The sibling has filed two blocks, the fork has locked one: count from what `_start_table` "
        "found for the fork, not from what is filed of the sibling."
    )
    expect_equal(desk.table(fork), desk.table(first), "the fork's table", why=why)
    expect_equal(fork.num_computed_tokens, 7, "num_computed_tokens", why=why)


@task("3.7")
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


@task("3.7")
def test_a_fork_takes_only_the_prompt(part: ModuleType) -> None:
    """A sibling that has generated on has blocks that are none of the fork's business."""
    desk = CacheDesk(part, caching=False)
    first = desk.admit(A[:4])
    for _ in range(6):
        desk.compute(first)
    fork = desk.admit(A[:4], fork_of=first)
    why = "The blocks after the prompt hold the sibling's own tokens."
    expect_equal(desk.table(fork), desk.table(first)[:1], "the fork's table", why=why)
    desk.check(why)


@task("3.7")
def test_a_fork_of_an_unready_sibling_starts_alone(part: ModuleType) -> None:
    """While the sibling lacks some of its prompt, a fork gets what the tree has, like anyone."""
    desk = CacheDesk(part)
    desk.file(A[:4])
    first = desk.admit(A[:9])
    desk.compute(first, 3)
    fork = desk.admit(A[:9], fork_of=first)
    why = (
        "Blocks that are not computed yet hold no K and V: `_can_fork` says which sibling is ready."
    )
    expect_equal(desk.table(fork), desk.table(first)[:1], "the fork's table", why=why)
    expect_equal(fork.num_computed_tokens, 4, "num_computed_tokens", why=why)
    desk.check(why)


@task("3.7")
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


def fork_one_on_the_host(part: ModuleType, *, by_itself: bool) -> None:
    """A fork of a request with its table on the host. by_itself: brought there by its own swap_out."""
    desk = CacheDesk(part, num_host_blocks=4, caching=False)
    first = desk.admit(A[:6])
    desk.compute(first)
    if by_itself:
        desk.cache.swap_out(first)
    else:
        desk.blocks.swap_out("r0")
        desk.note_change("r0 was swapped out")
    first.status = RequestStatus.SWAPPED
    fork = desk.admit(A[:6], fork_of=first)
    why = "The sibling's blocks are on the host: nothing can be shared. `_can_fork` says which is ready."
    seen = (desk.table(fork), fork.num_computed_tokens)
    expect_equal(seen, ([], 0), "the fork's table and num_computed_tokens", why=why)
    desk.check(why)


@task("3.7")
def test_a_fork_of_a_sibling_on_the_host_starts_alone(part: ModuleType) -> None:
    """A sibling that was swapped out has computed its prompt, but no block on the device."""
    moved_by_hand_or_by_itself(partial(fork_one_on_the_host, part))


@task("3.7")
def test_a_fork_that_comes_back_starts_behind_the_prompt_again(part: ModuleType) -> None:
    """A preempted fork has the sibling's prompt blocks again, and computes its own tokens again."""
    desk = CacheDesk(part)
    desk.file(A[:4])
    first = desk.admit(A[:6])
    desk.compute(first)
    fork = desk.request(A[:6], first)
    fork.token_ids += B[:7]
    fork.num_preemptions = 1
    desk.note_change("r1 has 13 tokens. It was preempted: num_preemptions = 1")
    desk.file(fork.token_ids[:12])
    desk.cache.admit(fork)
    why = "What it shares ends with the prompt: count with num_prompt_tokens, not with num_tokens."
    expect_equal(desk.table(fork), desk.table(first)[:2], "the fork's table", why=why)
    expect_equal(fork.num_computed_tokens, 5, "num_computed_tokens", why=why)
