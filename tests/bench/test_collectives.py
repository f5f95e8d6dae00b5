"""The model of an all-reduce: its transfers sum, and its times are those worked out by hand."""

import pytest

from yaie.bench.collectives import (
    ALGORITHMS,
    Algorithm,
    Machine,
    bytes_sent,
    round_seconds,
    rounds,
    seconds,
)

US = 1e-6


def switch(ranks: int) -> Machine:
    """2 us and 400 GB/s: 400,000 bytes a microsecond."""
    return Machine(ranks, 2 * US, 400e9)


def run(algorithm: Algorithm, ranks: int) -> list[list[int]]:
    """What each rank holds of each part in the end, if rank r begins with 10 ** r in all parts."""
    held = [[10**rank] * ranks for rank in range(ranks)]
    for transfers in rounds(algorithm, ranks):
        before = [list(row) for row in held]
        for transfer in transfers:
            parts = range(ranks) if transfer.part is None else [transfer.part]
            for part in parts:
                arrived = before[transfer.source][part]
                kept = held[transfer.target][part] if transfer.adds else 0
                held[transfer.target][part] = kept + arrived
    return held


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_rank_ends_with_every_rank_s_summand_once(algorithm: Algorithm, ranks: int) -> None:
    assert run(algorithm, ranks) == [[int("1" * ranks)] * ranks] * ranks


def test_a_ring_of_four_ranks_sends_one_and_a_half_times_the_tensor_from_each() -> None:
    assert bytes_sent("ring", 8192, 4) == [12288] * 4
    assert bytes_sent("two_shot", 8192, 4) == [12288] * 4
    assert bytes_sent("one_shot", 8192, 4) == [3 * 8192] * 4


def test_a_tree_of_four_ranks_has_four_rounds_and_rank_0_sends_twice() -> None:
    assert len(rounds("tree", 4)) == 4
    assert bytes_sent("tree", 8192, 4) == [2 * 8192, 8192, 2 * 8192, 8192]


@pytest.mark.parametrize(
    ("algorithm", "microseconds"),
    [
        # 400,000 bytes take 1 us on a link; a part of them is 25,000 bytes.
        ("ring", 30 * (2 + 1 / 16)),
        ("tree", 2 * 4 * (2 + 1)),
        ("one_shot", 2 + 15),
        ("two_shot", 2 * (2 + 15 / 16)),
    ],
)
def test_times_on_a_switch_are_those_of_the_formulas(
    algorithm: Algorithm, microseconds: float
) -> None:
    assert seconds(algorithm, 400_000, switch(16)) == pytest.approx(microseconds * US)


def test_one_shot_and_two_shot_cross_where_the_formulas_say() -> None:
    """alpha = (15 - 30/16) n / B at n = 60,952 bytes."""
    machine = switch(16)
    assert seconds("one_shot", 60_900, machine) < seconds("two_shot", 60_900, machine)
    assert seconds("one_shot", 61_000, machine) > seconds("two_shot", 61_000, machine)


def test_on_a_ring_of_cables_two_shot_crowds_the_links() -> None:
    """From each rank to those 1 to 8 places up: 1 + ... + 8 = 36 ways over each link up."""
    machine = Machine(16, 2 * US, 400e9, "cables")
    once = round_seconds(rounds("two_shot", 16)[0], 400_000, machine)
    assert once == pytest.approx((8 * 2 + 36 / 16) * US)
    assert seconds("ring", 400_000, machine) == seconds("ring", 400_000, switch(16))
    assert seconds("ring", 8 << 20, machine) < seconds("two_shot", 8 << 20, machine)
    assert seconds("ring", 4 << 20, machine) > seconds("two_shot", 4 << 20, machine)


def test_one_rank_needs_no_time() -> None:
    assert [seconds(algorithm, 1 << 20, switch(1)) for algorithm in ALGORITHMS] == [0] * 4


def test_a_machine_without_bandwidth_is_refused() -> None:
    with pytest.raises(ValueError, match="16 ranks"):
        Machine(16, 2 * US, 0)
