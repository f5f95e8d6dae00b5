"""WindowedCache: what goes back, what stays, and what may be gone on with."""

import pytest

from tests.engine.windows.bench import CHUNK, WindowedBench
from yaie.core.request import Request
from yaie.engine.windows.cache import GATHERED

TEXT = [(7 * at * at + 3 * at) % 5 for at in range(240)]


def chunked(bench: WindowedBench, request: Request, most: int = CHUNK) -> None:
    """Compute all tokens of a request, as many in a step."""
    while (left := request.num_tokens - request.num_computed_tokens) > 0:
        assert bench.compute(request, min(left, most))
        bench.check()
        if left <= most:
            return


def held(bench: WindowedBench, request: Request) -> int:
    return sum(block != bench.blank for block in bench.table(request))


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("window", [1, 4, 7, 8, 9])
def test_a_text_may_be_longer_than_the_pool(window: int, prefix_caching: bool) -> None:
    bench = WindowedBench(8, 4, window, prefix_caching=prefix_caching)
    request = bench.admit(TEXT)
    chunked(bench, request)
    assert len(bench.table(request)) == 60
    assert bench.cache.stats()["given_back_blocks"] == 60 - held(bench, request) >= 53
    bench.leave(request)
    assert bench.cache.stats()["used_blocks"] == 0


def test_while_there_is_room_blocks_go_back_together() -> None:
    """A table with other entries is sent anew, which a step of a long text should not do often."""
    bench = WindowedBench(64, 4, 8)
    request = bench.admit(TEXT[:32])
    chunked(bench, request)
    tables = [bench.cache.block_table(request)]
    for _ in range(32 * 4):
        assert bench.compute(request, 1)
        if (table := bench.cache.block_table(request)) is not tables[-1]:
            tables.append(table)
        assert held(bench, request) <= 3 + GATHERED
    assert len(tables) == 1 + 32 // GATHERED


def test_what_is_refused_changes_nothing() -> None:
    bench = WindowedBench(8, 4, 4)
    first = bench.admit(TEXT[:13])
    chunked(bench, first)
    request = bench.admit([4, *TEXT[:20]])
    assert bench.compute(request, 8)
    table, stats = bench.cache.block_table(request), bench.cache.stats()
    assert not bench.cache.allocate(request, 240)
    assert bench.cache.block_table(request) is table
    assert bench.cache.stats() == stats


def test_a_reserve_for_the_whole_text_counts_what_is_held_at_once() -> None:
    """A scheduler asks that the blocks for all of a prompt stay free."""
    bench = WindowedBench(7, 4, 8)
    request = bench.admit(TEXT)
    assert bench.cache.allocate(request, 8, keep_free=58)
    other = bench.admit([4, *TEXT[:30]])
    assert not bench.cache.allocate(other, 8, keep_free=6), "both would hold 5 at once"


def test_a_filed_block_that_went_back_is_found_until_its_room_is_needed() -> None:
    bench = WindowedBench(64, 4, 8)
    bench.serve(TEXT[:80])
    assert bench.cache.cached_tokens(bench.request(TEXT[:41])) == 40
    last = bench.admit(TEXT)
    assert last.num_computed_tokens == 80
    assert bench.table(last)[:18] == [bench.blank] * 18
    assert bench.table(last)[18] != bench.blank
    chunked(bench, last)


def test_a_window_without_its_beginning_is_gone_on_with() -> None:
    """Blocks of the text's beginning are given up, in the order in which they went back."""
    bench = WindowedBench(12, 4, 8)
    request = bench.admit(TEXT[:120])
    chunked(bench, request)
    bench.leave(request)
    assert bench.cache.stats()["evicted_blocks"] > 15
    assert bench.cache.cached_tokens(bench.request(TEXT[:41])) == 0
    again = bench.admit(TEXT[:140])
    assert again.num_computed_tokens == 120
    chunked(bench, again)


def test_a_gap_in_the_window_is_seen() -> None:
    """What decodes fill is filed when the request ends, and went back before."""
    bench = WindowedBench(64, 4, 8)
    request = bench.admit(TEXT[:10])
    chunked(bench, request)
    while request.num_tokens < 101:
        assert bench.compute(request, 1, commit=False)
    bench.leave(request)
    ids = request.token_ids
    assert bench.cache.cached_tokens(bench.request(ids[:41])) == bench.usable(ids[:41]) == 8
    assert bench.cache.cached_tokens(bench.request(ids[:101])) == 100


def test_a_place_without_a_block_gets_another_requests() -> None:
    bench = WindowedBench(64, 4, 8)
    request = bench.admit(TEXT[:10])
    chunked(bench, request)
    while request.num_tokens < 101:
        assert bench.compute(request, 1, commit=False)
    bench.leave(request)
    text = request.token_ids[:60]
    bench.serve(text)
    assert bench.cache.cached_tokens(bench.request([*text, 1])) == 60


def test_places_without_blocks_do_not_gather_for_ever() -> None:
    bench = WindowedBench(8, 4, 8)
    assert bench.tree is not None
    for first in range(60):
        request = bench.admit([first % 5, first // 5, *TEXT[:100]])
        chunked(bench, request)
        bench.leave(request)
    assert bench.tree.num_blocks <= 4 * bench.held.whole
    bench.cache.reset_prefix_cache()
    assert bench.tree.num_blocks == 0
    assert bench.cache.stats()["free_blocks"] == 7


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [3, 4, 5, 39, 40, 41])
def test_a_fork_begins_with_its_siblings_window(length: int, prefix_caching: bool) -> None:
    bench = WindowedBench(64, 4, 8, prefix_caching=prefix_caching)
    sibling = bench.admit(TEXT[:length])
    chunked(bench, sibling)
    fork = bench.admit(TEXT[:length], fork_of=sibling)
    assert fork.num_computed_tokens == length - 1
    bench.check()
    chunked(bench, fork)
    assert bench.compute(sibling, 1)
    assert bench.compute(fork, 1)


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_fork_whose_sibling_has_moved_on_computes_what_is_gone(prefix_caching: bool) -> None:
    bench = WindowedBench(64, 4, 8, prefix_caching=prefix_caching)
    sibling = bench.admit(TEXT[:39])
    chunked(bench, sibling)
    for _ in range(60):
        assert bench.compute(sibling, 1, commit=False)
    fork = bench.admit(TEXT[:39], fork_of=sibling)
    assert fork.num_computed_tokens == (36 if prefix_caching else 0)
    chunked(bench, fork)


def test_rejected_drafts_have_not_moved_the_window() -> None:
    bench = WindowedBench(16, 4, 4)
    request = bench.admit(TEXT[:17])
    chunked(bench, request)
    for _ in range(40):
        assert bench.verify(request, [4, 4, 4, 4, 4, 4])
        bench.check()


def test_no_other_waits_for_a_text_that_ended() -> None:
    bench = WindowedBench(16, 4, 4)
    request = bench.admit(TEXT[:40])
    assert bench.launch(request, 8)
    assert bench.cache.is_pending(bench.request(TEXT[:20]))
    assert not bench.cache.is_pending(bench.request([4, *TEXT[:20]]))
    bench.settle(request)
    assert bench.cache.cached_tokens(bench.request(TEXT[:20])) == 8
    bench.leave(request, keep=False)
    assert not bench.cache.is_pending(bench.request(TEXT[:40]))


def test_a_step_in_flight_keeps_what_it_sees() -> None:
    bench = WindowedBench(6, 4, 4)
    request = bench.admit(TEXT)
    assert bench.compute(request, 8)
    for _ in range(2):
        assert bench.launch(request, 8)
        bench.check()
    assert bench.table(request).count(bench.blank) == 1, "8 tokens are settled, 16 are in flight"
    assert not bench.launch(request, 8)
    bench.settle(request)
    assert bench.launch(request, 8)
    assert bench.table(request).count(bench.blank) == 3


def test_a_filed_block_that_a_fork_copies_may_be_given_up() -> None:
    """Its sibling has gone, and only the tree refers to it then."""
    bench = WindowedBench(64, 4, 8)
    sibling = bench.admit(TEXT[:40])
    chunked(bench, sibling)
    fork = bench.admit(TEXT[:40], fork_of=sibling)
    bench.leave(sibling)
    cached = bench.cache.stats()["cached_blocks"]
    assert bench.compute(fork, 1, commit=False)
    bench.check()
    assert bench.cache.stats()["cached_blocks"] == cached + 1
