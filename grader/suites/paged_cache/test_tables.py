"""Task 3.5: a request's table. What it starts with, how it grows, and what has to go for that."""

from types import ModuleType

from grader.kit import expect, expect_equal, quietly, run_machine, task
from grader.suites.paged_cache.cache_desk import CacheDesk
from grader.suites.paged_cache.table_machine import TableMachine

A = list(range(1, 21))
B = list(range(21, 41))

ONE_LEFT = (
    "A step needs at least one token to compute: without a query there are no logits to sample from. "
    "Only whole blocks can be reused, so the last block is computed again."
)
NOTHING = "The scheduler goes on as if it had never asked: no block taken, none evicted."


@task("3.5")
def test_without_a_cached_prefix_a_table_starts_empty(part: ModuleType) -> None:
    """In an empty cache admit finds nothing: no blocks, no computed tokens."""
    desk = CacheDesk(part)
    request = desk.request(A[:9])
    expect_equal(desk.cache.admit(request), 0, "what admit returned")
    seen = (request.num_computed_tokens, request.num_cached_tokens, desk.table(request))
    expect_equal(seen, (0, 0, []), "num_computed_tokens, num_cached_tokens and the table")


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
def test_a_preempted_request_counts_what_it_finds_now(part: ModuleType) -> None:
    """A request that comes back counts what it finds, generated tokens too, and no stale count."""
    desk = CacheDesk(part)
    request = desk.request(A[:6])
    request.token_ids += B[:7]
    request.num_preemptions, request.num_computed_tokens, request.num_cached_tokens = 1, 12, 4
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
    again = desk.request(B[:2])
    again.token_ids += B[2:12]
    again.num_preemptions = 1
    desk.file(B[:12])
    why = "It has 12 tokens now, and one must be computed: the limit is num_tokens, not the prompt."
    expect_equal(desk.cache.admit(again), 8, "what admit returned for another, all cached", why=why)


@task("3.5")
def test_allocate_adds_only_what_is_missing(part: ModuleType) -> None:
    """allocate makes room for the first num_tokens tokens: whole blocks, and only those that lack."""
    desk = CacheDesk(part)
    request = desk.admit(A[:13])
    why = "num_tokens counts from the start of the sequence; a block that is begun is needed whole."
    for num_tokens, blocks in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (7, 3), (13, 4)):
        expect(desk.cache.allocate(request, num_tokens), f"no room for {num_tokens} tokens of 32")
        what = f"blocks after room for {num_tokens} tokens was made"
        expect_equal(len(desk.table(request)), blocks, what, why=why)
    desk.check()


@task("3.5")
def test_without_room_nothing_changes(part: ModuleType) -> None:
    """allocate that cannot have all it needs returns False and leaves everything as it is."""
    desk = CacheDesk(part)
    desk.file(A[:8])
    request = desk.admit(B[:16])
    desk.cache.allocate(request, 16)
    before = desk.holdings()
    got = desk.cache.allocate(request, 36)
    expect_equal(
        got, False, "what allocate returned with 4 blocks to be had and 5 needed", why=NOTHING
    )
    expect_equal(
        desk.holdings(), before, "the state after allocate had returned False", why=NOTHING
    )
    expect_equal(
        desk.cache.allocate(request, 32), True, "what allocate returned for exactly all of it"
    )
    desk.check()


@task("3.5")
def test_keep_free_is_kept(part: ModuleType) -> None:
    """allocate leaves keep_free blocks free or evictable, or returns False and changes nothing."""
    desk = CacheDesk(part)
    desk.file(A[:16])
    request = desk.admit(B[:12])
    why = "The watermark leaves room for those that run already; cached blocks count as room."
    got = desk.cache.allocate(request, 12, keep_free=6)
    expect_equal(got, False, "3 blocks of 8 that may be had, with 6 to be kept", why=why)
    expect_equal(
        desk.table(request), [], "the table after allocate had returned False", why=NOTHING
    )
    got = desk.cache.allocate(request, 12, keep_free=5)
    expect_equal(got, True, "3 blocks of 8 that may be had, with 5 to be kept", why=why)
    expect_equal(desk.cache.stats()["evicted_blocks"], 0, "evicted blocks", why=EVICT_LITTLE)


EVICT_LITTLE = (
    "Every cached block is a prefix that the next request may have: evict only what is missing."
)


@task("3.5")
def test_pressure_evicts_what_is_missing(part: ModuleType) -> None:
    """Evicted blocks are given back and handed out again; no more go than are missing."""
    for num_tokens, evicted in ((16, 1), (20, 2)):
        desk = CacheDesk(part)
        desk.file(A)  # 5 blocks of 8
        request = desk.admit(B)
        expect(desk.cache.allocate(request, num_tokens), "no room although 8 blocks may be had")
        expect_equal(len(desk.table(request)), num_tokens // 4, "blocks in the table")
        expect_equal(
            desk.cache.stats()["evicted_blocks"], evicted, "evicted blocks", why=EVICT_LITTLE
        )
        desk.check("What the tree evicts it does not hold any more: release it.")
        got = quietly(desk.cache).cached_tokens(desk.request([*A, 0]))
        expect_equal(got, 20 - 4 * evicted, "cached tokens left", why=EVICT_LITTLE)


@task("3.5")
def test_a_prefix_in_use_is_not_evicted(part: ModuleType) -> None:
    """Blocks that a request reads are neither counted as room nor evicted."""
    desk = CacheDesk(part)
    desk.file(A[:16])
    user, greedy = desk.admit(A[:10]), desk.admit(B)
    why = "admit locks what it matched until the request is freed."
    for num_tokens, fits in ((28, False), (24, True)):
        got = desk.cache.allocate(greedy, num_tokens)
        expect_equal(got, fits, f"room for {num_tokens} tokens with 2 of 8 blocks in use", why=why)
    desk.check(why)
    expect_equal(desk.wrong_slots(user), "", "what the user of the prefix reads", why=why)


@task("3.5")
def test_without_a_tree_everything_is_computed(part: ModuleType) -> None:
    """Given no tree, the cache finds nothing, and makes room all the same."""
    desk = CacheDesk(part, caching=False)
    expect(desk.compute(desk.admit(A[:8])), "no room in an empty pool")
    again = desk.admit(A[:9])
    expect_equal(again.num_computed_tokens, 0, "num_computed_tokens of the same prompt")
    expect_equal(desk.cache.allocate(again, 28), False, "room for 7 blocks with 6 free")
    expect_equal(desk.cache.allocate(again, 24), True, "room for 6 blocks with 6 free")
    desk.check()


@task("3.5")
def test_any_script_of_admissions(part: ModuleType) -> None:
    """After any admissions and allocations every table leads to its tokens, and nothing leaks."""
    run_machine(TableMachine, part, runs=60, steps=12)
