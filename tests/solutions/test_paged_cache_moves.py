"""KVCacheManager: siblings that share a prompt, and requests that swap. Blocks have four slots."""

import pytest

from tests.solutions.cache_bench import CacheBench

A = list(range(100, 120))
B = list(range(200, 220))


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_fork_computes_one_token_and_copies_one_block(length: int, prefix_caching: bool) -> None:
    bench = CacheBench(prefix_caching=prefix_caching)
    first = bench.admit(A[:length])
    bench.compute(first)
    fork = bench.admit(A[:length], fork_of=first)
    assert fork.num_computed_tokens == length - 1
    assert bench.compute(fork, 1, commit=False)
    assert len(bench.last_plan.copies) == 1
    whole = (length - 1) // 4
    assert bench.table(fork)[:whole] == bench.table(first)[:whole]
    assert bench.table(fork)[whole] != bench.table(first)[whole]
    bench.check()


def test_fork_and_sibling_write_apart() -> None:
    bench = CacheBench()
    first = bench.admit(A[:6])
    bench.compute(first)
    fork = bench.admit(A[:6], fork_of=first)
    for request in (fork, first, first, fork, fork, first):
        assert bench.compute(request)
        bench.check()
    assert first.output_token_ids != fork.output_token_ids


def test_fork_of_a_sibling_that_has_gone_on_sees_only_the_prompt() -> None:
    bench = CacheBench()
    first = bench.admit(A[:6])
    for _ in range(5):
        bench.compute(first)
    fork = bench.admit(A[:6], fork_of=first)
    assert fork.num_computed_tokens == 5
    assert bench.compute(fork)
    bench.check()


def test_fork_outlives_its_sibling() -> None:
    bench = CacheBench()
    first = bench.admit(A[:9])
    bench.compute(first)
    fork = bench.admit(A[:9], fork_of=first)
    bench.compute(fork)
    bench.leave(first)
    bench.cache.reset_prefix_cache()
    bench.check()
    assert bench.compute(fork)


def test_fork_without_room_for_its_copy_changes_nothing() -> None:
    bench = CacheBench(num_blocks=2)
    first = bench.admit(A[:6])
    bench.compute(first)
    before = bench.cache.stats()
    fork = bench.admit(A[:6], fork_of=first)
    assert not bench.cache.allocate(fork, 6)
    bench.cache.free(fork)
    assert bench.cache.stats() == before
    bench.check()


@pytest.mark.parametrize("computed", [0, 5])
def test_fork_of_a_sibling_without_its_prompt_starts_by_itself(computed: int) -> None:
    bench = CacheBench()
    first = bench.admit(A[:9])
    if computed:
        bench.compute(first, computed)
    fork = bench.admit(A[:9], fork_of=first)
    assert fork.num_computed_tokens == computed // 4 * 4
    assert bench.compute(fork)
    bench.check()


def test_fork_of_a_finished_sibling_finds_its_prompt_cached() -> None:
    bench = CacheBench()
    first = bench.serve(A[:9])
    assert bench.admit(A[:9], fork_of=first).num_computed_tokens == 8


def test_fork_waits_for_its_siblings_prompt() -> None:
    bench = CacheBench()
    first = bench.admit(A[:9])
    fork = bench.request(A[:9], fork_of=first)
    bench.compute(first, 5)
    assert bench.cache.is_pending(fork)
    bench.compute(first, 4)
    assert not bench.cache.is_pending(fork)


def test_blocks_of_a_fork_are_not_evictable_when_its_sibling_files_them_later() -> None:
    bench = CacheBench()
    first = bench.admit(A[:9])
    bench.compute(first, commit=False)
    fork = bench.admit(A[:9], fork_of=first)
    bench.compute(fork, commit=False)
    bench.leave(first)
    bench.check()


def test_swap_round_trip_keeps_the_content() -> None:
    bench = CacheBench(num_host_blocks=4, prefix_caching=False)
    request = bench.admit(A[:10])
    bench.compute(request)
    assert bench.swap_out(request)
    assert bench.table(request) == []
    bench.compute(bench.admit(B))
    bench.check()
    assert bench.swap_in(request)
    assert len(bench.last_plan.swap_in) == 3
    bench.check()


def test_swap_in_copies_only_what_the_tree_lost() -> None:
    bench = CacheBench(num_host_blocks=4)
    request = bench.admit(A[:14])
    bench.compute(request)
    bench.swap_out(request)
    bench.compute(bench.admit(B))
    bench.compute(bench.admit([7]))
    assert bench.cache.stats()["evicted_blocks"] == 1
    bench.leave(bench.requests[1])
    kept = bench.cache.cached_tokens(request)
    assert 0 < kept < 12
    assert bench.swap_in(request)
    assert len(bench.last_plan.swap_in) == 4 - kept // 4
    bench.check()


def test_swap_out_onto_a_full_host_changes_nothing() -> None:
    bench = CacheBench(num_host_blocks=2)
    request = bench.admit(A[:10])
    bench.compute(request)
    before = bench.table(request)
    assert not bench.swap_out(request)
    assert bench.table(request) == before
    assert bench.cache.take_moves() == ([], [], [])
    bench.check()
    assert bench.compute(request)


def test_swap_in_without_room_changes_nothing() -> None:
    bench = CacheBench(num_host_blocks=4)
    request = bench.admit(A[:10])
    bench.compute(request)
    bench.swap_out(request)
    bench.compute(bench.admit(B))
    bench.compute(bench.admit([7]))
    before = bench.cache.stats()
    assert not bench.cache.swap_in(request, 11)
    assert bench.cache.stats() == before
    assert bench.blocks.num_swapped_blocks(request.request_id) == 3
    bench.check()


def test_swap_in_honours_keep_free() -> None:
    bench = CacheBench(num_host_blocks=4, prefix_caching=False)
    request = bench.admit(A[:10])
    bench.compute(request)
    bench.swap_out(request)
    assert not bench.cache.swap_in(request, 11, keep_free=6)
    assert bench.cache.swap_in(request, 11, keep_free=5)


def test_freeing_a_swapped_request_returns_its_host_blocks() -> None:
    bench = CacheBench(num_host_blocks=4)
    request = bench.admit(A[:10])
    bench.compute(request)
    bench.swap_out(request)
    bench.cache.free(request)
    assert bench.blocks.num_free_host == 4
    bench.check()


def test_moves_are_handed_over_once() -> None:
    bench = CacheBench(num_host_blocks=4)
    request = bench.admit(A[:10])
    bench.compute(request)
    bench.cache.swap_out(request)
    assert len(bench.cache.take_moves()[0]) == 3
    assert bench.cache.take_moves() == ([], [], [])
