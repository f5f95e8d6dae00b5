"""GroupedCache and its encoder: what both groups of layers do together."""

from typing import Any

import numpy as np
import pytest

from tests.engine.windows.bench import CHUNK
from tests.engine.windows.grouped_bench import GroupedBench
from tests.engine.windows.test_cache import TEXT, chunked
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.errors import InvariantError
from yaie.core.request import Request
from yaie.engine.asks.base import Vocabulary
from yaie.engine.windows.encoder import GroupedEncoder


def both(bench: GroupedBench, request: Request) -> tuple[list[int], list[int]]:
    return bench.full_table(request), bench.table(request)


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_text_may_be_longer_than_the_windowed_pool(prefix_caching: bool) -> None:
    bench = GroupedBench(60, 8, 4, 7, prefix_caching=prefix_caching)
    request = bench.admit(TEXT)
    chunked(bench, request)
    full, windowed = both(bench, request)
    assert len(full) == len(set(full)) == len(windowed) == 60
    assert windowed.count(bench.blank) >= 53
    bench.leave(request)
    assert bench.cache.stats()["used_blocks"] == 0


@pytest.mark.parametrize(("num_full", "num_windowed"), [(8, 40), (40, 8)], ids=["full", "windowed"])
def test_what_one_group_lacks_is_taken_of_neither(num_full: int, num_windowed: int) -> None:
    bench = GroupedBench(num_full, num_windowed, 4, 8)
    request = bench.admit(TEXT[:13])
    assert bench.compute(request, 8)
    tables, stats = both(bench, request), bench.cache.stats()
    assert not bench.cache.allocate(request, 8 + 36)
    assert (both(bench, request), bench.cache.stats()) == (tables, stats)
    assert bench.cache.num_available_blocks == min(num_full, num_windowed - 1) - 2


def test_a_prefix_is_cached_as_far_as_both_groups_have_it() -> None:
    """Another text takes the windows' room, and none of the others'."""
    bench = GroupedBench(100, 12, 4, 8)
    first = bench.admit(TEXT[:80])
    chunked(bench, first)
    bench.leave(first)
    assert bench.cache.cached_tokens(bench.request(TEXT[:100])) == 80
    other = bench.admit([4, 4, *TEXT[:78]])
    chunked(bench, other)
    bench.leave(other)
    assert bench.grouped._tree is not None
    assert len(bench.grouped._tree._tree.peek(TEXT[:100], 24)) == 20
    again = bench.request(TEXT[:100])
    found = bench.cache.cached_tokens(again)
    assert found == bench.windowed.usable(TEXT[:100], 20) * 4 < 80
    assert not bench.cache.is_pending(again)
    bench.readmit(again)
    assert again.num_computed_tokens == found
    chunked(bench, again)


def test_a_prefix_is_cached_no_farther_than_the_full_group_has_it() -> None:
    bench = GroupedBench(24, 80, 4, 8)
    for first in (0, 1, 2):
        request = bench.admit([first, 4, *TEXT[:62]])
        chunked(bench, request)
        bench.leave(request)
    oldest = [0, 4, *TEXT[:62], 1]
    assert bench.windowed.usable(oldest, 16) == 16
    found = bench.cache.cached_tokens(bench.request(oldest))
    assert found < 64
    again = bench.admit(oldest)
    assert again.num_computed_tokens == found
    chunked(bench, again)


def test_no_other_waits_for_a_window_that_does_not_come_back() -> None:
    """The first computes far behind the place where the second parts from it, whose window is gone."""
    bench = GroupedBench(100, 7, 4, 8)
    first = bench.admit(TEXT)
    for _ in range(12):
        assert bench.compute(first, CHUNK)
    assert bench.launch(first, CHUNK)
    second = bench.request([*TEXT[:40], 4])
    assert bench.grouped._tree is not None
    assert bench.grouped._tree.is_cut(second.token_ids, 10)
    assert not bench.cache.is_pending(second)
    third = bench.request(TEXT[:112])
    assert bench.cache.is_pending(third), "it goes on where the first one is"


@pytest.mark.parametrize("length", [39, 40, 41])
def test_a_fork_whose_siblings_window_moved_on_forks_in_neither_group(length: int) -> None:
    bench = GroupedBench(64, 64, 4, 8, prefix_caching=False)
    sibling = bench.admit(TEXT[:length])
    chunked(bench, sibling)
    early = bench.admit(TEXT[:length], fork_of=sibling)
    assert early.num_computed_tokens == length - 1
    chunked(bench, early)
    for _ in range(60):
        assert bench.compute(sibling, 1, commit=False)
    late = bench.admit(TEXT[:length], fork_of=sibling)
    assert late.num_computed_tokens == 0
    chunked(bench, late)


def test_the_share_of_a_reserve_that_windowed_blocks_have() -> None:
    """Of 100 blocks 20 are to stay free, so of 10 windowed ones 2."""
    bench = GroupedBench(100, 10, 4, 8)
    request = bench.admit(TEXT[:8])
    assert bench.cache.allocate(request, 8, keep_free=20)
    other = bench.admit([4, *TEXT[:27]])
    assert bench.cache.allocate(other, 20, keep_free=22)
    assert not bench.cache.allocate(other, 24, keep_free=21)
    assert bench.cache.allocate(other, 24, keep_free=1)


def test_check_finds_tables_of_different_lengths() -> None:
    bench = GroupedBench(20, 20, 4, 8)
    request = bench.admit(TEXT[:8])
    assert bench.compute(request, 8)
    bench.blocks.allocate(request.request_id, 1)
    with pytest.raises(InvariantError, match=r"r0: tables of \(2, 3\) blocks"):
        bench.cache.check()


class Reader:
    """A worker's rows, of a step's entries alone."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = np.full((4, 2 * width), -1)

    def read(self, step: Any) -> None:
        self.rows[step.table_seats, step.table_columns] = step.table_blocks

    def tables(self, seat: int, length: int) -> tuple[list[int], list[int]]:
        row = self.rows[seat].tolist()
        return row[:length], row[self.width : self.width + length]


def test_the_worker_knows_both_tables_of_every_request_after_each_step() -> None:
    bench = GroupedBench(100, 24, 4, 8)
    width = bench.held.whole
    encoder = GroupedEncoder(
        4, Vocabulary(5), second_table=bench.grouped.windowed_table, width=width
    )
    reader = Reader(width)

    def send(*requests: Request) -> None:
        items = [
            ScheduledRequest(one, one.num_computed_tokens, 1, bench.cache.block_table(one), False)
            for one in requests
        ]
        step = encoder.encode(StepPlan(items))
        assert step is not None
        reader.read(step)
        for seat, one in zip(step.seats.tolist(), requests, strict=True):
            assert reader.tables(seat, len(bench.table(one))) == both(bench, one)

    first, second = bench.admit(TEXT[:60]), bench.admit([4, *TEXT[:60]])
    for round_ in range(7):
        assert bench.compute(first, CHUNK)
        send(first)
        assert bench.compute(second, 4 + round_ % 2)
        send(first, second)
    assert bench.table(first).count(bench.blank) > 5
    bench.preempt(first)
    bench.leave(second)
    third = bench.admit([3, *TEXT[:30]])
    assert bench.compute(third, CHUNK)
    send(third)
    bench.readmit(first)
    assert bench.compute(first, 1)
    send(first, third)
    assert encoder.encode(StepPlan()) is None
