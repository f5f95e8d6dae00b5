"""Task 18.2: which samples of a step count."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.kit.apart import (
    IDS,
    NO_BITS_LOST,
    SAME_OBJECT,
    apart,
    expect_unchanged,
    is_cut,
)

BONUS = (
    "The sample after the last draft counts if all drafts were right: k drafts bring k + 1 tokens."
)
INSTEAD = (
    "The sample that differs from its draft counts: everything before it is right, so it is what the "
    "target says there. A step brings one token at least."
)
BEHIND = (
    "Nothing counts after the first sample that differs from its draft: it was sampled after a text "
    "that does not exist, equal or not."
)
PLACE = (
    "Draft i is a guess at sample i, both after the same text, and the sample after draft i is sample "
    "i + 1."
)
DRAWN = (
    "What counts is what was sampled. Where draft and sample differ, the draft is the one that is "
    "wrong."
)
INTEGERS = "Tokens are Python's int: what NumPy has is another type, which `json` refuses."
FAILED = "-1 says that nothing could be sampled there: neither it nor anything after it counts."


def gained(part: Any, drafts: list[int], samples: list[int]) -> list[int]:
    start_script()
    note(f"accepted({drafts}, {samples})")
    given = apart(drafts), apart(samples)
    got: list[int] = part.accepted(*given)
    expect_unchanged(given, (drafts, samples), "an argument of accepted")
    foreign = {type(token).__name__ for token in got if not isinstance(token, int)}
    expect(not foreign, f"accepted returns a token as {', '.join(foreign)}", why=INTEGERS)
    return got


def is_right_of_the_same_objects(
    part: Any, drafts: list[int], samples: list[int], wanted: list[int]
) -> bool:
    """Whether it is right where equal tokens are one object."""
    one = {token: token for token in [*drafts, *samples]}
    got: list[int] = part.accepted([one[t] for t in drafts], [one[t] for t in samples])
    return got == wanted


def right(drafts: list[int], samples: list[int]) -> list[int]:
    """By the contract: a sample counts if the drafts before it equal the samples before them."""
    return [
        token
        for index, token in enumerate(samples)
        if drafts[:index] == samples[:index] and min(samples[: index + 1]) >= 0
    ]


def why_not(got: list[int], wanted: list[int], drafts: list[int]) -> str:
    """Which mistake leads to it."""
    if is_cut(got, wanted):
        return NO_BITS_LOST
    if -1 in got:
        return FAILED
    if got and got == drafts[: len(got)] and got != wanted[: len(got)]:
        return DRAWN
    if len(got) > len(wanted):
        return BEHIND
    if len(got) == len(wanted) - 1 and got == wanted[:-1]:
        return BONUS if wanted[:-1] == drafts else INSTEAD
    return PLACE


def check(part: Any, drafts: list[int], samples: list[int], what: str) -> None:
    got, wanted = gained(part, drafts, samples), right(drafts, samples)
    why = why_not(got, wanted, drafts)
    if got != wanted and is_right_of_the_same_objects(part, drafts, samples, wanted):
        why = SAME_OBJECT
    expect_equal(got, wanted, what, why=why)


@task("18.2")
def test_all_drafts_right(part: Any) -> None:
    """When all drafts were right, the sample after the last counts too: the bonus."""
    check(part, [7, 3, 9, 4], [7, 3, 9, 4, 8], "the tokens gained")
    check(part, [7], [7, 8], "the tokens gained by one draft")


@task("18.2")
def test_no_drafts(part: Any) -> None:
    """Without drafts the one sample counts."""
    check(part, [], [5], "the tokens gained")


@task("18.2")
def test_the_first_difference_ends_it(part: Any) -> None:
    """The sample that differs from its draft counts, and is the last."""
    check(part, [7, 3, 9, 4], [7, 3, 5, 4, 8], "the tokens gained")
    check(part, [7, 3], [6, 3, 8], "the tokens gained when the first draft was wrong")
    check(part, [7, 3], [7, 4, 4], "the tokens gained when the last draft was wrong")


@task("18.2")
def test_draft_and_draw_of_the_same_place(part: Any) -> None:
    """A draft is compared with the sample of its own place, not with a neighbour."""
    check(part, [7, 3], [5, 7, 3], "the tokens gained when each draft is the sample before")
    check(part, [7, 3, 9], [3, 9, 7, 1], "the tokens gained when each draft is the sample after")
    check(part, [7, 7, 7], [7, 7, 3, 7], "the tokens gained with equal drafts")


@task("18.2")
def test_a_draw_that_failed(part: Any) -> None:
    """A sample of -1 ends what counts, and does not count itself."""
    check(part, [7, 3], [7, -1, 3], "the tokens gained")
    check(part, [7], [-1, 8], "the tokens gained when the first sample failed")
    check(part, [7, 3], [7, 3, -1], "the tokens gained when the bonus failed")
    check(part, [], [-1], "the tokens gained without drafts")


@task("18.2")
@examples(150)
@given(st.data(), st.integers(0, 5))
def test_any_drafts(part: Any, data: st.DataObject, count: int) -> None:
    """Whatever drafts and samples are, those samples count that stand after right drafts."""
    tokens = st.sampled_from(data.draw(st.sampled_from(IDS)))
    drafts = data.draw(st.lists(tokens, min_size=count, max_size=count))
    samples = data.draw(
        st.lists(st.one_of(tokens, tokens, st.just(-1)), min_size=count + 1, max_size=count + 1)
    )
    check(part, drafts, samples, "the tokens gained")
