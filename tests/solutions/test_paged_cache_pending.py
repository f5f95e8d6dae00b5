"""KVCacheManager: who waits for what, and what is filed of steps in flight. Blocks have four slots."""

import pytest

from tests.solutions.cache_bench import CacheBench
from yaie.core.request import Request, RequestStatus

A = list(range(100, 120))
B = list(range(200, 220))


@pytest.fixture
def bench() -> CacheBench:
    return CacheBench(num_host_blocks=4)


def is_pending(bench: CacheBench, prompt: list[int], fork_of: Request | None = None) -> bool:
    return bench.cache.is_pending(bench.request(prompt, fork_of))


def test_request_whose_next_block_is_being_computed_is_pending(bench: CacheBench) -> None:
    bench.serve(A[:4])
    bench.cache.allocate(bench.admit(A[:12]), 12)
    assert is_pending(bench, A[:12])
    assert is_pending(bench, [*A[:8], 1])


def test_request_that_shares_no_whole_block_is_not_pending(bench: CacheBench) -> None:
    bench.cache.allocate(bench.admit(A[:12]), 12)
    assert not is_pending(bench, [*A[:3], *B[:9]])
    assert not is_pending(bench, A[:4]), "its last token is its own to compute"


def test_same_block_after_another_beginning_is_not_pending(bench: CacheBench) -> None:
    bench.serve(A[:4])
    bench.serve(B[:4])
    bench.cache.allocate(bench.admit(A[:9]), 9)
    assert not is_pending(bench, [*B[:4], *A[4:9]])


def test_chunk_that_fills_no_block_makes_nobody_wait(bench: CacheBench) -> None:
    bench.cache.allocate(bench.admit(A[:12]), 3)
    assert not is_pending(bench, A[:12])


def test_decode_that_fills_a_block_makes_nobody_wait(bench: CacheBench) -> None:
    first = bench.admit(A[:7])
    bench.compute(first)
    bench.launch(first)
    assert not is_pending(bench, [*first.token_ids, 1, 2])


def test_drafts_that_were_rejected_make_nobody_wait(bench: CacheBench) -> None:
    first = bench.admit(A[:6])
    bench.compute(first)
    bench.cache.allocate(first, first.num_tokens + 4)
    for _ in range(2):
        bench.compute(first, commit=False)
    assert not is_pending(bench, [*first.token_ids, 1, 2]), "filed when the first ends"


def test_block_is_pending_until_the_result_of_its_step_is_filed(bench: CacheBench) -> None:
    first = bench.admit(A[:12])
    bench.launch(first)
    bench.compute(bench.admit(B[:3]))
    assert is_pending(bench, A[:12])
    bench.settle(first)
    assert not is_pending(bench, A[:12])
    assert bench.cache.cached_tokens(bench.request(A[:12])) == 8


def test_both_chunks_in_flight_are_pending(bench: CacheBench) -> None:
    first, late = bench.admit(A[:14]), bench.request([*A[:12], *B[:2]])
    bench.launch(first, 5)
    bench.launch(first, 9)
    assert bench.cache.is_pending(late), "the first chunk fills its first block"
    bench.settle(first)
    assert bench.cache.is_pending(late), "the second chunk fills its second block"
    bench.settle(first)
    assert not bench.cache.is_pending(late)


def test_what_a_request_gave_up_is_not_pending(bench: CacheBench) -> None:
    failed, swapped, preempted = (bench.admit(A[:8]) for _ in range(3))
    for request in (failed, swapped, preempted):
        bench.launch(request, 4)
    bench.leave(failed, keep=False)
    assert is_pending(bench, A[:12]), "two others compute it"
    bench.swap_out(swapped)
    assert is_pending(bench, A[:12]), "another computes it"
    bench.preempt(preempted)
    assert not is_pending(bench, A[:12])


def test_only_settled_blocks_are_filed(bench: CacheBench) -> None:
    first = bench.admit(A[:12])
    bench.launch(first, 4)
    bench.launch(first, 8)
    bench.settle(first)
    assert bench.cache.cached_tokens(bench.request(A[:12])) == 4
    bench.check()
    bench.leave(first)
    assert bench.cache.stats()["cached_blocks"] == 1
    bench.check()


def test_fork_waits_for_the_result_of_its_siblings_prompt(bench: CacheBench) -> None:
    first = bench.admit(A[:9])
    bench.launch(first)
    fork = bench.request(A[:9], fork_of=first)
    assert bench.cache.is_pending(fork)
    bench.settle(first)
    assert not bench.cache.is_pending(fork)
    bench.readmit(fork)
    assert fork.num_computed_tokens == 8


def test_fork_of_a_sibling_that_does_not_run_does_not_wait(bench: CacheBench) -> None:
    first = bench.admit(A[:9])
    bench.launch(first)
    bench.preempt(first)
    assert first.status is RequestStatus.PREEMPTED
    assert not is_pending(bench, A[:9], fork_of=first)
