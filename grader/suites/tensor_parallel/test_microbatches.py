"""Task 20.8: a step cut into microbatches of even size."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.kit.rank_links import Channels, SimLink
from grader.kit.ranks import Ranks
from solutions.tensor_parallel.one_process import smallest_largest_run

TOKENS = (
    "The slowest microbatch sets the pace of every stage. What counts is its tokens, not its rows: a "
    "prompt's chunk weighs as much as hundreds of decodes."
)
BEST = "The largest run is as small as it can be: try limits, and see how many runs each needs."
JUST_AS_MANY = (
    "Each run ends where one more row would make it {0} tokens, which is the smallest limit that few "
    "enough runs can keep. A run may have just as many tokens as the limit."
)
ALL = "Every row is in one run, in its order, and no run is empty."


def cut_by(part: ModuleType, num_tokens: list[int], count: int) -> list[range]:
    """microbatches, with what must always hold."""
    ranks = Ranks(part, 2)
    pipeline = part.Pipeline(SimLink(ranks, Channels(), 0))
    start_script()
    note(f"pipeline.microbatches({num_tokens}, {count})")
    got: list[range] = pipeline.microbatches(num_tokens, count)
    what = f"microbatches({num_tokens}, {count})"
    expect(all(isinstance(run, range) for run in got), f"{what}: {got} are no ranges")
    expect(all(len(run) for run in got), f"{what}: {got} has an empty run", why=ALL)
    rows = [row for run in got for row in run]
    expect_equal(rows, list(range(len(num_tokens))), f"rows of the runs of {what}", why=ALL)
    if len(got) > count:
        sums = [sum(num_tokens[row] for row in run) for run in got]
        limit = smallest_largest_run(num_tokens, count) if len(num_tokens) < 10 else 0
        ends = [total + num_tokens[run.stop] for total, run in zip(sums, got[:-1], strict=False)]
        told = f"{what}: {len(got)} runs, of {sums} tokens, which is more than {count}"
        is_cut_early = set(ends) == {limit}
        expect(False, told, why=JUST_AS_MANY.format(limit) if is_cut_early else "")
    return got


@task("20.8")
def test_no_row_is_lost(part: ModuleType) -> None:
    """microbatches has every row in one run, in order; at most `count` runs, and none is empty."""
    for num_tokens in ([], [5], [1, 1, 1, 1, 1], [7, 1, 1], [1, 1, 7]):
        for count in (1, 2, 3, 8):
            cut_by(part, num_tokens, count)


@task("20.8")
def test_runs_are_even_in_tokens(part: ModuleType) -> None:
    """The largest number of tokens in a run of microbatches is as small as it can be."""
    for num_tokens, count in [
        ([1, 1, 1, 1], 2), ([1, 1, 1, 1, 8], 2), ([2, 2, 2, 3, 3], 2), ([9, 1, 1, 1, 1], 3),
        ([3, 3, 3, 3, 3], 4), ([1, 2, 3, 4, 5, 6], 3), ([4, 4, 1, 4, 4], 3),
    ]:  # fmt: skip
        _expect_even(part, num_tokens, count)


@task("20.8")
@examples(40)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 5))
def test_no_cut_is_more_even(part: ModuleType, num_tokens: list[int], count: int) -> None:
    """No other cut into as many runs has a smaller largest run."""
    _expect_even(part, num_tokens, count)


def _expect_even(part: ModuleType, num_tokens: list[int], count: int) -> None:
    got = cut_by(part, num_tokens, count)
    largest = max(sum(num_tokens[row] for row in run) for run in got)
    what = f"tokens of the largest run of microbatches({num_tokens}, {count}), which are {got}"
    rows = [len(run) for run in got]
    is_by_rows = len(set(num_tokens)) > 1 and max(rows) - min(rows) <= 1 and len(rows) == count
    why = TOKENS if is_by_rows else BEST
    expect_equal(largest, smallest_largest_run(num_tokens, count), what, why=why)
