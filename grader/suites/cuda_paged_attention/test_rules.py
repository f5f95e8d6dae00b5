"""Tasks 16.2 and 16.3: window and softcap, and which keys a part has."""

import math
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect_equal, start_script, task
from grader.kit.cuda_work import blamed
from grader.kit.kernels import expect_near, paged_decode, paged_pool
from grader.kit.script import off_the_record
from grader.suites.cuda_paged_attention.bench import (
    F32,
    everywhere,
    expect_decode,
    joined,
    marked,
    means,
    queries,
    run_parts,
    slot,
    spec_of,
)


@task("16.2")
def test_a_window_is_its_last_keys(part: ModuleType) -> None:
    """With a window of w a decode sees the last w keys, itself included; all of a shorter sequence."""
    lens = [9, 4, 2]
    pool = marked(lens, dim=16)
    exact = means([7.0, 2.0, 0.5], dim=16)
    leaves = {
        9: "Of 9 keys a window of 3 leaves 6, 7 and 8.",
        4: "Of 4 keys the first alone is hidden by a window of 3: 1, 2 and 3 are left.",
        2: "A sequence of 2 keys is seen whole under a window of 3, from key 0 on.",
    }
    what = "values 0, 1, 2, ... under a window of 3, lens 9, 4 and 2"
    found = run_parts(part, queries(3, 1, 16), pool, spec_of(16, window=3), 1, 256)
    got = joined(found, [1, 1, 1]).float()
    for row, length in enumerate(lens):
        mean, last = float(got[row, 0, 0]), length - 1
        first = 2 * mean - last  # the mean of keys first to last
        why = f"The query stands at seq_len - 1. {leaves[length]}"
        if 0 <= first <= last and first == round(first):
            why = f"What came out is the mean of keys {first:.0f} to {last}. {why}"
        expect_near(got[row], exact[row], F32, f"sequence {row} of {what}", why=why)


@task("16.2")
def test_keys_before_the_window_are_not_read(part: ModuleType) -> None:
    """Blocks before the window may be gone: their entries mean nothing."""
    pool = paged_pool([14, 10])
    pool.block_tables[0, :2] = 2**30
    why = "A window of 5 of 14 keys begins at key 9, in the third block of 4: start there."
    windowed = spec_of(16, window=5)
    exact = paged_decode(queries(2, 4, 16), paged_pool([14, 10]), windowed)
    what = "a window of 5 where the first blocks of a table were given away"
    expect_decode(part, queries(2, 4, 16), pool, windowed, what, why, exact=exact)


def not_capped(weight: float, score: float, passed: list[float]) -> str:
    """Whether this score alone stands as it is, after others that were capped."""
    if not passed or abs(1 / (1 + math.exp(-score)) - weight) > 1e-4:
        return ""
    kind = (
        "negative"
        if score < 0 < min(passed)
        else "small"
        if 0 < score < min(map(abs, passed))
        else ""
    )
    others = ", ".join(f"{one:g}" for one in dict.fromkeys(passed))
    every = f"Every score goes through tanh, {kind} ones too." if kind else ""
    return f"Score {score:g} was not capped, and {others} were. {every}".rstrip()


def of_score(weight: float) -> str:
    """Which score beside 0 weighs so much."""
    return f", that of {math.log(weight / (1 - weight)):.4f} beside 0" if 0 < weight < 1 else ""


def of_the_cap(weight: float, softcap: float, score: float) -> str:
    """Which score would weigh as much beside 0, if one mistake gives it."""
    usual = {
        "as it does without a softcap. In decode.cu the turn calls capped() for each whole score if "
        "rules.softcap is above 0": score,
        "as tanh alone would make it: the softcap multiplies what tanh gives": math.tanh(
            score / softcap
        ),
        "as softcap * tanh(score) would make it: the score is divided by the softcap first": (
            softcap * math.tanh(score)
        ),
        "as if the score were cut off at the softcap, and tanh bends it before": min(
            score, softcap
        ),
        "as if each of 2 lanes had capped its share. What is capped is a whole score, after the sum "
        "over the team": 2 * softcap * math.tanh(score / 2 / softcap),
    }
    told = [
        words for words, value in usual.items() if abs(1 / (1 + math.exp(-value)) - weight) < 1e-4
    ]
    return f"The score weighs {told[0]}." if len(told) == 1 else ""


@task("16.2")
def test_a_softcap_bounds_the_scores(part: ModuleType) -> None:
    """A scaled score s becomes softcap * tanh(s / softcap)."""
    passed: list[float] = []
    for softcap, score, right in (
        (2.0, 10.0, 0.8807780),
        (2.0, 1.0, 0.7159041),
        (0.5, 1.0, 0.6182233),
        (2.0, -10.0, 0.1192220),
        (2.0, 0.2, 0.5496696),
        (2.0, 1000.0, 0.8807971),
    ):
        pool = marked([32], dim=16)  # a full turn: half of the keys have each score
        for position in range(32):
            pool.key_blocks[slot(pool, 0, position)] = score / 4 * (position % 2)
            pool.value_blocks[slot(pool, 0, position)] = position % 2
        spec = spec_of(16, softcap=softcap)
        start_script()
        found = run_parts(part, torch.ones(1, 1, 16), pool, spec, 1, 256)
        weight = float(joined(found, [1])[0, 0, 0])
        if abs(weight - right) < 1e-4:
            passed.append(score)
            continue
        overflow = "e^1000 is infinite, and infinity by infinity is NaN; tanh(500) is 1."
        raise Mismatch(
            f"at softcap {softcap:g}, the weight of score {score:g} beside score 0",
            f"{right:.4f}, that of {softcap:g} * tanh({score:g} / {softcap:g}) beside 0",
            f"{weight:.4f}{of_score(weight)}",
            overflow
            if math.isnan(weight) and score > 500
            else not_capped(weight, score, passed) or of_the_cap(weight, softcap, score),
        )


@task("16.2")
def test_a_softcap_lets_no_missing_key_in(part: ModuleType) -> None:
    """A key that does not exist has no weight under a softcap either."""
    pool, spec = marked([2], dim=16), spec_of(16, softcap=2.0)
    why = (
        "2 * tanh(-infinity / 2) is -2: cap the scores first, then give -infinity to the keys that do "
        "not exist."
    )
    what = "2 keys of zero, values 0 and 1, at softcap 2"
    exact = means([0.5], dim=16)
    expect_decode(part, queries(1, 1, 16), pool, spec, what, why, exact=exact)


def counted(found: Any) -> list[int]:
    """How many keys the parts of the first head have by their weights, of scores that are all 0."""
    top, total = found.stats[0, 0].double().unbind(-1)
    weights = (total * top.exp()).nan_to_num(-1.0)
    return [round(float(weight)) for weight in weights]


@task("16.3")
def test_a_part_has_its_own_keys(part: ModuleType) -> None:
    """Part i holds the visible keys first + i * keys_per_part up to the next part, or to the end."""
    pool = marked([11], dim=16)
    found = run_parts(part, queries(1, 1, 16), pool, spec_of(16), 3, 4)
    each = (found.acc[0, 0, :, 0] / found.stats[0, 0, :, 1]).tolist()
    counts = counted(found)
    if -1 in counts:  # with keys of 0 in all other slots, too, those past the end count
        with off_the_record():
            full = everywhere(marked([11], dim=16))
            counts = counted(run_parts(part, queries(1, 1, 16), full, spec_of(16), 3, 4))
    why = "Keys 0-3, 4-7, 8-10: every key is in one part, and none is past the end."
    if counts != [4, 4, 3]:
        numbers = ", ".join(map(str, counts))
        why = f"The weights of the parts add up to {numbers} keys, and the parts have 4, 4 and 3. {why}"
    if counts == [4, 4, 4]:
        why = "The last part has the weight of 4 keys, and 3 are left, 8 to 10: it ends at seq_len."
    expect_equal(
        [round(mean, 3) for mean in each],
        [1.5, 5.5, 9.0],
        "the mean values of 3 parts of 4 keys, of 11 keys with values 0, 1, 2, ...",
        why=why,
    )


@task("16.3")
def test_parts_begin_where_the_window_begins(part: ModuleType) -> None:
    """It is the visible keys that are cut, not all of them."""
    pool = marked([20], dim=16)
    found = run_parts(part, queries(1, 1, 16), pool, spec_of(16, window=6), 2, 4)
    each = (found.acc[0, 0, :, 0] / found.stats[0, 0, :, 1]).tolist()
    expect_equal(
        [round(mean, 3) for mean in each],
        [15.5, 18.5],
        "the mean values of 2 parts of 4 keys under a window of 6, of 20 keys",
        why="The window leaves keys 14 to 19: the first part is 14-17, the second 18 and 19.",
    )


@task("16.3")
def test_the_parts_of_a_head_lie_side_by_side(part: ModuleType) -> None:
    """acc is [n, heads, parts, d]: head h of a part lies h * head_stride rows behind head 0."""
    pool = marked([8], dim=16)
    what = "8 keys in 2 parts of 4, with 2 heads"
    why = "With two parts, head 1 begins two rows behind head 0: merge_teams is given head_stride."
    with blamed("race", f"Two parts write the same row of acc or stats. {why}"):
        expect_decode(
            part, queries(1, 2, 16), pool, spec_of(16), what, why, parts=2, keys_per_part=4,
            exact=means([3.5], heads=2, dim=16),
        )  # fmt: skip


@task("16.3")
@examples(8)
@given(
    lens=st.lists(st.integers(0, 30), min_size=1, max_size=2),
    keys_per_part=st.sampled_from([1, 3, 8, 16]),
    window=st.none() | st.integers(1, 12),
)
def test_any_split_joins_to_the_whole(
    part: ModuleType, lens: list[int], keys_per_part: int, window: int | None
) -> None:
    """However the keys are cut, the parts join to the same attention."""
    pool = paged_pool(lens)
    parts = max(1, -(-max(lens) // keys_per_part))
    what = f"lens {lens} in parts of {keys_per_part} keys, window {window}"
    why = "Every visible key belongs to one part."
    spec = spec_of(16, window=window)
    expect_decode(
        part, queries(len(lens), 4, 16), pool, spec, what, why, parts=parts,
        keys_per_part=keys_per_part,
    )  # fmt: skip
