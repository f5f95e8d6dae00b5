"""KVCacheManager, rule by rule: prefix reuse, room, eviction. Blocks have four slots."""

import pytest

from tests.solutions.cache_bench import CacheBench

A = list(range(100, 120))
B = list(range(200, 220))


@pytest.fixture
def bench() -> CacheBench:
    return CacheBench()


@pytest.mark.parametrize(("length", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_fully_cached_prompt_recomputes_its_last_token(
    bench: CacheBench, length: int, cached: int
) -> None:
    bench.serve(A[:length])
    again = bench.admit(A[:length])
    assert again.num_computed_tokens == again.num_cached_tokens == cached
    assert bench.compute(again)
    bench.check()


def test_cached_tokens_counts_what_admission_would_find(bench: CacheBench) -> None:
    bench.serve(A[:9])
    assert bench.cache.cached_tokens(bench.request(A[:8])) == 4
    assert bench.cache.cached_tokens(bench.request(A[:6] + B[:6])) == 4
    assert bench.cache.cached_tokens(bench.request(B)) == 0


def test_cached_tokens_locks_nothing(bench: CacheBench) -> None:
    bench.serve(A[:9])
    before = bench.cache.stats()
    bench.cache.cached_tokens(bench.request(A[:9]))
    assert bench.cache.stats() == before


def test_cached_prefix_is_shared_not_copied(bench: CacheBench) -> None:
    first = bench.admit(A[:9])
    bench.compute(first)
    second = bench.admit(A[:9])
    assert bench.table(second) == bench.table(first)[:2]


def test_only_full_blocks_are_filed(bench: CacheBench) -> None:
    bench.serve(A[:7])
    assert bench.cache.stats()["cached_blocks"] == 1


def test_generated_tokens_are_reused_too(bench: CacheBench) -> None:
    first = bench.admit(A[:7])
    for _ in range(3):
        bench.compute(first)
    bench.leave(first)
    assert bench.cache.cached_tokens(bench.request(first.token_ids)) == 8


def test_uncomputed_tokens_are_not_filed(bench: CacheBench) -> None:
    request = bench.admit(A[:12])
    bench.cache.allocate(request, 12)
    bench.leave(request)
    assert bench.cache.stats()["cached_blocks"] == 0


def test_failed_request_leaves_nothing_in_the_cache(bench: CacheBench) -> None:
    request = bench.admit(A[:9])
    bench.compute(request, commit=False)
    bench.leave(request, keep=False)
    assert bench.cache.stats()["free_blocks"] == 8


def test_prefix_filed_twice_is_kept_once(bench: CacheBench) -> None:
    first, second = bench.admit(A[:10]), bench.admit(A[:10])
    bench.compute(first, commit=False)
    bench.compute(second, commit=False)
    duplicates = bench.table(second)
    bench.cache.commit(first)
    bench.cache.commit(second)
    assert bench.table(second) == [*bench.table(first)[:2], duplicates[2]]
    assert [bench.blocks.ref_count(block) for block in duplicates] == [0, 0, 1]
    bench.check()
    assert bench.compute(second)


def test_prefix_filed_by_another_meanwhile_is_taken_over_where_mine_ends(
    bench: CacheBench,
) -> None:
    slow = bench.admit(A[:14])
    bench.compute(slow, 5)
    fast = bench.admit(A[:14])
    bench.compute(fast)
    bench.compute(slow)
    assert bench.table(slow)[:3] == bench.table(fast)[:3]
    bench.check()


def test_commit_makes_a_new_table_when_it_replaces_blocks(bench: CacheBench) -> None:
    first, second = bench.admit(A[:8]), bench.admit(A[:8])
    bench.compute(first)
    bench.compute(second, commit=False)
    held, copy = bench.cache.block_table(second), bench.table(second)
    bench.cache.commit(second)
    assert bench.cache.block_table(second) is not held
    assert held == copy


def test_allocate_adds_only_what_is_missing(bench: CacheBench) -> None:
    request = bench.admit(A[:10])
    bench.cache.allocate(request, 5)
    bench.cache.allocate(request, 8)
    assert len(bench.table(request)) == 2
    bench.cache.allocate(request, 9)
    assert len(bench.table(request)) == 3


def test_without_room_allocate_changes_nothing(bench: CacheBench) -> None:
    first = bench.admit(A)
    bench.compute(first)
    second = bench.admit(B)
    bench.cache.allocate(second, 8)
    before = bench.cache.stats(), bench.table(second)
    assert not bench.cache.allocate(second, 16)
    assert (bench.cache.stats(), bench.table(second)) == before
    bench.check()


def test_keep_free_is_honoured(bench: CacheBench) -> None:
    request = bench.admit(A[:12])
    assert not bench.cache.allocate(request, 12, keep_free=6)
    assert bench.table(request) == []
    assert bench.cache.allocate(request, 12, keep_free=5)


def test_keep_free_counts_evictable_blocks(bench: CacheBench) -> None:
    bench.serve(A[:16])
    request = bench.admit(B[:12])
    assert bench.cache.num_available_blocks == 8
    assert not bench.cache.allocate(request, 12, keep_free=6)
    assert bench.cache.allocate(request, 12, keep_free=5)
    assert bench.cache.stats()["evicted_blocks"] == 0


def test_pressure_evicts_only_as_much_as_is_missing(bench: CacheBench) -> None:
    bench.serve(A)  # 5 blocks
    request = bench.admit(B)
    assert bench.compute(request)
    assert bench.cache.stats()["evicted_blocks"] == 2
    assert bench.cache.cached_tokens(bench.request(A)) == 12
    bench.check()


def test_pressure_never_takes_blocks_in_use(bench: CacheBench) -> None:
    bench.serve(A[:8])
    user = bench.admit([*A[:8], 1])
    bench.compute(user)
    greedy = bench.admit(B)
    assert bench.compute(greedy)
    bench.check()
    assert bench.compute(user)
    assert not bench.cache.allocate(greedy, 24)


def test_least_recently_used_prefix_goes_first(bench: CacheBench) -> None:
    bench.serve(A[:8])
    bench.serve(B[:8])
    bench.serve([*A[:8], 1])
    bench.compute(bench.admit(list(range(20))))
    assert bench.cache.cached_tokens(bench.request([*A[:8], 1])) == 8
    assert bench.cache.cached_tokens(bench.request([*B[:8], 1])) == 4


def test_reset_frees_all_but_what_is_in_use(bench: CacheBench) -> None:
    bench.serve(B[:12])
    bench.serve([*A[:4], *B[:8]])
    user = bench.admit(A[:6])
    bench.compute(user)
    assert bench.cache.reset_prefix_cache() == 5
    assert bench.cache.stats()["used_blocks"] == 2
    assert bench.compute(user)
    bench.check()


def test_free_is_harmless_without_a_table_and_twice(bench: CacheBench) -> None:
    request = bench.request(A)
    bench.cache.free(request)
    bench.readmit(request)
    bench.compute(request)
    bench.cache.free(request)
    bench.cache.free(request)
    bench.check()


def test_preempted_request_matches_its_own_blocks_and_counts_them_right(
    bench: CacheBench,
) -> None:
    request = bench.admit(A[:7])
    for _ in range(4):
        bench.compute(request)
    assert request.num_tokens == 11
    bench.preempt(request)
    bench.readmit(request)
    assert request.num_computed_tokens == 8
    bench.compute(request)
    assert request.num_tokens == 12
    bench.check()


def test_cached_tokens_of_the_first_admission_survive_a_preemption(bench: CacheBench) -> None:
    request = bench.admit(A[:9])
    bench.compute(request)
    bench.preempt(request)
    bench.readmit(request)
    assert request.num_computed_tokens == 8
    assert request.num_cached_tokens == 0


def test_without_a_tree_nothing_is_shared_and_everything_returns() -> None:
    bench = CacheBench(prefix_caching=False)
    bench.serve(A[:8])
    again = bench.admit([*A[:8], 1])
    assert again.num_computed_tokens == 0
    bench.compute(again)
    bench.check()
    bench.leave(again)
    assert bench.cache.stats()["free_blocks"] == 8
    assert bench.cache.reset_prefix_cache() == 0
