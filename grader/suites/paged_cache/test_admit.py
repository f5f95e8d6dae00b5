"""Task 3.5: what a request's table starts with."""

from types import ModuleType

from grader.kit import expect_equal, run_machine, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.table_machine import AdmitMachine

A = list(range(1, 21))
B = list(range(21, 41))

ONE_LEFT = (
    "A step needs at least one token to compute: without a query there are no logits to sample from. "
    "Only whole blocks can be reused, so the last block is computed again."
)


@task("3.5")
def test_without_a_cached_prefix_a_table_starts_empty(part: ModuleType) -> None:
    """In an empty cache admit finds nothing: no blocks, no computed tokens."""
    desk = CacheDesk(part)
    request = desk.request(A[:9])
    expect_equal(desk.cache.admit(request), 0, "what admit returned")
    seen = (request.num_computed_tokens, request.num_cached_tokens, desk.table(request))
    expect_equal(seen, (0, 0, []), "num_computed_tokens, num_cached_tokens and the table")
    desk.check()


@task("3.5")
def test_a_cached_prefix_is_shared(part: ModuleType) -> None:
    """admit starts the table with the tree's own blocks: referenced, locked, not copied."""
    desk = CacheDesk(part)
    path = desk.file(A[:8])
    request = desk.admit(A[:11])
    why = "Reuse means to read the same memory: the table points to the blocks that the tree has."
    expect_equal(desk.table(request), path, "the table", why=why)
    expect_equal(request.num_computed_tokens, 8, "num_computed_tokens", why=why)
    expect_equal(request.num_cached_tokens, 8, "num_cached_tokens", why=why)
    expect_equal(desk.refs(path), [2, 2], "references: the tree's and the table's", why=why)
    assert desk.tree is not None
    expect_equal(
        desk.tree.num_evictable, 0, "evictable blocks while a request reads them",
        why="Lock the node that matched: eviction must not take a prefix that is in use.",
    )  # fmt: skip
    expect_equal(desk.carry_out(), ([], [], []), "block moves that were promised", why=why)


@task("3.5")
def test_a_fully_cached_prompt_computes_its_last_token(part: ModuleType) -> None:
    """However much is cached, at least one token is left to compute."""
    for length, cached in ((3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)):
        desk = CacheDesk(part)
        desk.file(A[:12])
        request = desk.request(A[:length])
        what = f"with 12 tokens cached and a prompt of {length}, all of them among those"
        got = (desk.cache.admit(request), request.num_computed_tokens, len(desk.table(request)))
        expected = (cached, cached, cached // 4)
        expect_equal(got, expected, f"admit, num_computed_tokens and blocks {what}", why=ONE_LEFT)


@task("3.5")
def test_who_may_not_reuse_a_prefix_starts_with_nothing(part: ModuleType) -> None:
    """A request whose may_reuse_prefix is False finds nothing cached, and takes nothing."""
    why = (
        "It was asked for the log-probabilities of its prompt, and cached keys and values have no "
        "logits: it computes all of its tokens. `may_reuse_prefix` says so."
    )
    desk = CacheDesk(part)
    desk.file(A[:8])
    request = desk.request(A[:11], may_reuse=False)
    expect_equal(desk.cache.cached_tokens(request), 0, "cached_tokens", why=why)
    expect_equal(desk.cache.admit(request), 0, "what admit returned", why=why)
    seen = (request.num_computed_tokens, request.num_cached_tokens, desk.table(request))
    expect_equal(seen, (0, 0, []), "num_computed_tokens, num_cached_tokens, the table", why=why)


@task("3.5")
def test_a_fork_may_reuse_what_its_sibling_may_not(part: ModuleType) -> None:
    """Of siblings whose prompt needs log-probabilities, only the first computes all of it."""
    desk = CacheDesk(part)
    path = desk.file(A[:8])
    fork = desk.request(A[:11], desk.request(A[:11], may_reuse=False), may_reuse=False)
    why = (
        "r0 gives the log-probabilities of the prompt for both, so r1 may use what is cached: ask "
        "`may_reuse_prefix`, which knows of forks, and not the parameters."
    )
    expect_equal(desk.cache.admit(fork), 8, "what admit returned for r1", why=why)
    expect_equal(desk.table(fork), path, "the table of r1", why=why)


@task("3.5")
def test_a_preempted_request_counts_what_it_finds_now(part: ModuleType) -> None:
    """A request that comes back counts what it finds, generated tokens too, and no stale count."""
    desk = CacheDesk(part)
    request = desk.request(A[:6])
    request.token_ids += B[:7]
    request.num_preemptions, request.num_computed_tokens, request.num_cached_tokens = 1, 12, 4
    desk.note_change(
        "r0 has 13 tokens. It was preempted: num_preemptions, num_cached_tokens = 1, 4"
    )
    desk.file(request.token_ids[:8])
    stale = (
        "It was preempted with 12 tokens computed, and 8 of them are still cached: what it lost must be "
        "computed again, or it reads blocks that were never written."
    )
    expect_equal(desk.cache.admit(request), 8, "what admit returned", why=stale)
    expect_equal(request.num_computed_tokens, 8, "num_computed_tokens", why=stale)
    expect_equal(len(desk.table(request)), 2, "blocks in the table", why=stale)
    expect_equal(
        request.num_cached_tokens, 4, "num_cached_tokens",
        why="It says what the first admission found; what the request wrote itself is no hit.",
    )  # fmt: skip


@task("3.5")
def test_what_a_preempted_request_finds_of_its_own_is_no_hit(part: ModuleType) -> None:
    """A request that found nothing cached at first keeps that number when it comes back."""
    desk = CacheDesk(part)
    request = desk.request(B[:2])
    request.token_ids += B[2:12]
    request.num_preemptions = 1
    desk.note_change(
        "r0 has 12 tokens. It was preempted: num_preemptions, num_cached_tokens = 1, 0"
    )
    desk.file(B[:12])
    why = "It has 12 tokens now, and one must be computed: the limit is num_tokens, not the prompt."
    expect_equal(desk.cache.admit(request), 8, "what admit returned", why=why)
    why = "Ask num_preemptions whether this is its first admission: 0 may be what that one found."
    expect_equal(request.num_cached_tokens, 0, "num_cached_tokens", why=why)


@task("3.5")
def test_a_prefix_in_use_is_not_evicted(part: ModuleType) -> None:
    """What a table took from the tree stays there, however much is evicted."""
    desk = CacheDesk(part)
    path = desk.file(A[:16])
    user = desk.admit(A[:10])
    desk.evict(4)
    assert desk.tree is not None
    why = "Lock the node that matched, and keep it for the unlock when the request is freed."
    left = sorted(desk.tree.all_blocks())
    expect_equal(left, path[:2], "blocks that are left when all that may go is evicted", why=why)
    expect_equal(desk.wrong_slots(user), "", "what the user of the prefix reads", why=why)


@task("3.5")
def test_without_a_tree_nothing_is_found(part: ModuleType) -> None:
    """Given no tree, a table starts empty."""
    desk = CacheDesk(part, caching=False)
    for _ in range(2):
        request = desk.admit(A[:9])
        seen = (request.num_computed_tokens, request.num_cached_tokens, desk.table(request))
        expect_equal(seen, (0, 0, []), "num_computed_tokens, num_cached_tokens and the table")
    desk.check()


@task("3.5")
def test_any_script_of_admissions(part: ModuleType) -> None:
    """After any admissions every table begins with the tree's own blocks, locked, and nothing leaks."""
    run_machine(AdmitMachine, part, runs=20, steps=10)
