"""Task 16.3: into how many parts the keys are cut."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, task

WAVES = (
    "rows * parts blocks on so many slots take ceil(rows * parts / slots) waves, and each wave as long "
    "as the keys of a part and 128 more"
)


def time_of(rows: int, slots: int, parts: int, keys: int) -> int:
    return -(-rows * parts // slots) * (keys + 128)


def expect_plan(part: ModuleType, rows: int, max_keys: int, slots: int, why: str) -> None:
    """The plan covers the keys within its bounds, in at most 15% more than the best plan's time."""
    parts, keys = part.plan_split(rows, max_keys, slots)
    plan = f"plan_split(rows={rows}, max_keys={max_keys}, slots={slots}) = ({parts}, {keys})"
    expect(
        parts * keys >= max_keys, f"{plan}: {max_keys - parts * keys} keys are in no part", why=why
    )
    needless = parts > 1 and (parts - 1) * keys >= max_keys
    expect(not needless, f"{plan}: the last part never has a key", why=why)
    expect(1 <= keys <= 4096, f"{plan}: a part has up to 4,096 keys, and at least one", why=why)
    small = parts > 1 and keys < 64
    expect(not small, f"{plan}: a part of fewer than 64 keys is not worth its merge", why=why)
    least = max(1, -(-max_keys // 4096))
    counts = range(least, max(least, max_keys // 64) + 1)
    best = min((time_of(rows, slots, n, max(1, -(-max_keys // n))), n) for n in counts)
    time = time_of(rows, slots, parts, keys)
    expect(
        time <= 1.15 * best[0],
        f"{plan} takes the time of {time:,} keys; {best[1]} parts would take {best[0]:,}",
        why=why,
    )


@task("16.3")
def test_a_long_sequence_fills_the_device(part: ModuleType) -> None:
    """Few rows of thread blocks are cut into enough parts to give every slot a block."""
    why = f"With one part, 8 blocks would run and 520 slots stay idle: {WAVES}."
    expect_plan(part, 8, 32768, 528, why)


@task("16.3")
def test_the_last_wave_is_not_nearly_empty(part: ModuleType) -> None:
    """The number of parts makes waves that are full: the last one takes as long as any."""
    why = f"{WAVES}. 256 rows in 3 parts are 768 blocks: on 528 slots two waves, the second half empty."
    expect_plan(part, 256, 4096, 528, why)
    expect_plan(part, 500, 8192, 528, why)
    why = (
        f"{WAVES}. A part has at most 4,096 keys, so 134,598 need 33 parts: on 8 slots a fifth wave "
        "for one block. 40 parts fill five waves."
    )
    expect_plan(part, 1, 134_598, 8, why)


@task("16.3")
def test_parts_are_neither_tiny_nor_huge(part: ModuleType) -> None:
    """A part has 64 to 4,096 keys, and there is at least one part."""
    why = (
        "A part of few keys costs more in its merge than it gains; slots of 4,096 keys fit a block."
    )
    for rows, keys in ((1, 1024), (1, 100), (100_000, 20_000), (0, 0), (1, 1)):
        expect_plan(part, rows, keys, 528, why)


@task("16.3")
@examples(60)
@given(
    rows=st.integers(0, 5000), keys=st.integers(0, 60_000), slots=st.sampled_from([16, 264, 528])
)
def test_any_plan(part: ModuleType, rows: int, keys: int, slots: int) -> None:
    """Any plan covers the keys, has no needless part, and takes about as little time as can be."""
    expect_plan(part, rows, keys, slots, f"{WAVES[0].upper()}{WAVES[1:]}.")
