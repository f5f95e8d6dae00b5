"""Task 22.5: a share of a prompt is cut where its state can be kept."""

from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect_equal, note, task

END = (
    "A state is that after the last token of a step. Kept after a block, it must be the state after "
    "the block's last token: the share ends there, depth * block_size - start tokens on."
)
FIRST_PLACE = (
    "The share ends at the first place that is wanted. The rest of it is computed in the next step, "
    "which comes to the next place."
)
PAST = (
    "A place where the share begins, or before that, is past: a step computes one token at least."
)
WHOLE = "A state serves a prefix of whole blocks alone: the last block that the share fills."
WORTH = (
    "A share that ends its prompt (least is None) is cut for a wanted place alone. Another one is cut "
    "by the budget anyway, and its state is kept if that is worth it, from depth `least` on."
)


def expect_cut(part: ModuleType, asked: tuple[Any, ...], right: tuple[int, int]) -> None:
    """What cut_share gives, and why it is not that."""
    note(f"cut_share({', '.join(map(repr, asked))})")
    got = part.cut_share(*asked)
    got = tuple(got) if isinstance(got, list | tuple) else got
    start, _, size, wanted, _ = asked
    why = WORTH
    if isinstance(got, tuple) and len(got) == 2 and got[1]:
        if start + got[0] != got[1] * size:
            why = END
        elif got[0] <= 0:
            why = PAST
        elif right[1]:
            why = FIRST_PLACE if right[1] in wanted else WHOLE
    elif right[1] in wanted:
        why = f"{FIRST_PLACE} {PAST}"
    expect_equal(got, right, f"cut_share{asked}, tokens and depth", why=why)


def right_cut(
    start: int, num_tokens: int, size: int, wanted: list[int], least: int | None
) -> tuple[int, int]:
    """Tried out, place after place."""
    ends = [
        depth
        for depth in range(1, (start + num_tokens) // size + 1)
        if start < depth * size <= start + num_tokens
    ]
    for depth in ends:
        if depth in wanted:
            return depth * size - start, depth
    if least is not None and ends and ends[-1] >= least:
        return ends[-1] * size - start, ends[-1]
    return num_tokens, 0


@task("22.5")
def test_a_share_by_hand(part: ModuleType) -> None:
    """Blocks of four, a prompt of 41 tokens, states wanted after blocks 5 and 10."""
    for asked, right in (
        ((0, 41, 4, [5, 10], None), (20, 5)),
        ((20, 21, 4, [5, 10], None), (20, 10)),
        ((40, 1, 4, [5, 10], None), (1, 0)),
        ((0, 40, 4, [10], None), (40, 10)),
        ((0, 39, 4, [10], None), (39, 0)),
        ((0, 23, 4, [10], 4), (20, 5)),
        ((20, 23, 4, [10], 9), (20, 10)),
        ((0, 23, 4, [], 6), (23, 0)),
        ((0, 23, 4, [], None), (23, 0)),
        ((21, 2, 4, [], 0), (2, 0)),
        ((21, 3, 4, [], 0), (3, 6)),
    ):
        expect_cut(part, asked, right)


@task("22.5")
@examples(150)
@given(
    st.integers(0, 30), st.integers(1, 30), st.integers(1, 6),
    st.lists(st.integers(1, 20), unique=True, max_size=3).map(sorted),
    st.none() | st.integers(0, 12),
)  # fmt: skip
def test_any_share(
    part: ModuleType, start: int, num_tokens: int, size: int, wanted: list[int], least: int | None
) -> None:
    """The first wanted place after its first token, or else the last whole block if it is worth it."""
    asked = start, num_tokens, size, wanted, least
    expect_cut(part, asked, right_cut(*asked))
