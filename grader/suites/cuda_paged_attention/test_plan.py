"""Task 16.3: into how many parts the keys are cut."""

import importlib.util
import sys
from contextlib import suppress
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, note, task

WAVES = (
    "rows * parts blocks on so many slots take ceil(rows * parts / slots) waves, and each wave as long "
    "as the keys of a part and 128 more"
)

KEPT = (
    "An earlier call decides here what a later one gives: something was made once and kept, outside of "
    "the function or in a default argument. A plan follows from its three arguments alone."
)


def time_of(rows: int, slots: int, parts: int, keys: int) -> int:
    return -(-rows * parts // slots) * (keys + 128)


def waves_of(rows: int, slots: int, parts: int, keys: int) -> str:
    """A plan's time in words, by what it is made of."""
    blocks = rows * parts
    waves = -(-blocks // slots)
    idle = waves * slots - blocks
    wave = "1 wave" if waves == 1 else f"{waves} waves"
    return (
        f"{rows} rows in {parts} parts of {keys:,} keys are {blocks:,} blocks, and so {wave} of "
        f"{keys:,} + 128 keys on {slots} slots, of which {idle:,} stay idle in the last one"
    )


def planned_anew(part: ModuleType, *asked: int) -> tuple[int, int] | None:
    """What `plan_split` answers in a module that is loaded anew: as its first call."""
    try:
        path = sys.modules[part.plan_split.__module__].__file__
        spec = importlib.util.spec_from_file_location(part.plan_split.__module__, path or "")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        parts, keys = module.plan_split(*asked)
        return parts, keys
    except Exception:  # noqa: BLE001, then nothing is known of it
        return None


def expect_split(plan: object, what: str) -> None:
    """A plan has both of its numbers by name, and they are integers."""
    numbers = [getattr(plan, name, None) for name in ("parts", "keys_per_part")]
    if all(isinstance(number, int) for number in numbers):
        return
    why = "decode asks a plan for its parts and keys_per_part, and kernels get both as integers."
    raise Mismatch(f"{what} is no Split", "a Split of two integers", repr(plan)[:100], why)


def expect_plan(part: ModuleType, rows: int, max_keys: int, slots: int, why: str) -> None:
    """The plan covers the keys within its bounds, in at most 15% more than the best plan's time."""
    plan = part.plan_split(rows, max_keys, slots)
    expect_split(plan, f"plan_split({rows}, {max_keys}, {slots})")
    parts, keys = plan.parts, plan.keys_per_part
    note(f"plan_split({rows}, {max_keys}, {slots})  # -> ({parts}, {keys})")
    try:
        expect_good(parts, keys, rows, max_keys, slots, why)
    except Mismatch as error:
        first = planned_anew(part, rows, max_keys, slots)
        if first is not None and first != (parts, keys):
            error.problem += f". As the first call of all, the same call gives {first}"
            error.why = KEPT
        elif limit := most_parts(part, parts):
            error.why = limit
        raise


def most_parts(part: ModuleType, parts: int) -> str:
    """Whether no plan has more parts than this one, wherever more would take less time."""
    with suppress(Exception):
        for rows, max_keys in ((1, 16384), (2, 32768), (3, 20000), (1, 32768)):
            keys = -(-max_keys // parts)
            blocks = rows * parts
            is_more = time_of(rows, 528, 2 * parts, -(-keys // 2)) < time_of(rows, 528, parts, keys)
            if not is_more or part.plan_split(rows, max_keys, 528).parts != parts:
                return ""
        return (
            f"With 1, 2 and 3 rows there are {parts} parts, too, where more take less time: with 1 row "
            f"{528 - blocks} of 528 slots stay idle. 32,768 keys allow 512 parts, of 64 keys each."
        )
    return ""


def expect_good(parts: int, keys: int, rows: int, max_keys: int, slots: int, why: str) -> None:
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
    fewest = "Fewer parts are not possible. " if parts == least else ""
    more = f"{waves_of(rows, slots, best[1], max(1, -(-max_keys // best[1])))}."
    expect(
        time <= 1.15 * best[0],
        f"{plan} takes the time of {time:,} keys; {best[1]} parts would take {best[0]:,}",
        why=f"{waves_of(rows, slots, parts, keys)}. {fewest}{more} {why}",
    )


@task("16.3")
def test_a_long_sequence_fills_the_device(part: ModuleType) -> None:
    """Few rows of thread blocks are cut into enough parts to give every slot a block."""
    why = f"{WAVES[0].upper()}{WAVES[1:]}."
    expect_plan(part, 8, 32768, 528, why)


@task("16.3")
def test_the_last_wave_is_not_nearly_empty(part: ModuleType) -> None:
    """The number of parts makes waves that are full: the last one takes as long as any."""
    why = f"{WAVES[0].upper()}{WAVES[1:]}."
    expect_plan(part, 256, 4096, 528, why)
    expect_plan(part, 500, 8192, 528, why)
    why = "A part has at most 4,096 keys: 134,598 need 33 parts, on 8 slots a fifth wave for one block."
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
