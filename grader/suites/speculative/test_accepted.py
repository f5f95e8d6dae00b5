"""Task 18.2: which draws count."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect_equal, task

BONUS = (
    "If every draft equals its draw, the draw behind the last draft counts as well: k drafts bring "
    "k + 1 tokens."
)
FIRST = "The first draw was made behind the text: it counts whatever the drafts are."
STOP = (
    "A draw counts if the drafts before it equal the draws before them. The first that differs from its "
    "draft is the last that counts."
)
BESIDE = "Draft i is a guess at draw i: compare the two with the same index."
FAILED = "A draw of -1 is none: it does not count, nor does any behind it."


@task("18.2")
def test_worked_cases(part: Any) -> None:
    """The draws count up to the first that differs from its draft, that one included."""
    for drafts, draws, gained, why in (
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8], BONUS),
        ([5], [5, 9], [5, 9], BONUS),
        ([], [4], [4], FIRST),
        ([5, 6], [9, 6, 7], [9], FIRST),
        ([5, 6, 7], [5, 9, 7, 8], [5, 9], STOP),
        ([5, 6, 5], [5, 9, 5, 8], [5, 9], STOP),
        ([6, 7, 8], [5, 6, 7, 8], [5], BESIDE),
        ([5, 6], [5, -1, 3], [5], FAILED),
        ([5], [-1, 5], [], FAILED),
        ([0, 0], [0, 0, 0], [0, 0, 0], BONUS),
        ([5, 6], [5, 6, -1], [5, 6], FAILED),
    ):
        got = list(part.accepted(drafts, draws))
        expect_equal(got, gained, f"accepted({drafts}, {draws})", why=why)


@task("18.2")
@examples(100)
@given(
    drafts=st.lists(st.integers(0, 2), max_size=5),
    seed=st.lists(st.integers(-1, 2), min_size=6, max_size=6),
)
def test_any_drafts(part: Any, drafts: list[int], seed: list[int]) -> None:
    """Whatever the drafts, what is gained is what drawing one by one would have given."""
    draws = seed[: len(drafts) + 1]
    wanted: list[int] = []
    for index, token in enumerate(draws):
        if token == -1 or drafts[:index] != draws[:index]:
            break
        wanted.append(token)
    got = list(part.accepted(drafts, draws))
    expect_equal(got, wanted, f"accepted({drafts}, {draws})", why=STOP)
