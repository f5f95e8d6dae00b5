"""Task 17.1: the sizes that are recorded, and the size of a step."""

from bisect import bisect_left
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, start_script, task
from grader.suites.cuda_graphs.bench import alone
from yaie.core.contracts.graphs import Size

EXACT = (
    "A step takes the smallest size that is at least as large. One that is as large as a size takes "
    "that size; one row more takes the next."
)
ROOM = (
    "A step takes the first size with room for its decodes, for the tokens of its chunks, and for its "
    "chunks, each on its own: rows of one zone are of no use to the other."
)
NONE = "A step that no size holds is launched as it is: the answer is None."
FIRST = (
    "All sizes are looked at in their order, which is that of their rows. The first that holds the step "
    "is the smallest, whatever it has more of: one with chunks may hold a step of decodes."
)
INTEGERS = "A number of rows is Python's int: NumPy's are another type."
SIZES = (
    "1, 2 and 4 for the few, then each multiple of 8, so no step carries more than 7 rows of padding; "
    "and the largest step there can be, which would have no graph otherwise. Nothing larger is ever "
    "needed."
)


@task("17.1")
def test_sizes(part: Any) -> None:
    """`padded_sizes` gives 1, 2, 4, the multiples of 8 and the largest, ascending, and no larger one."""
    eights = [1, 2, 4, 8, 16, 24, 32, 40]
    rights = {n: eights[: eights.index(n) + 1] for n in (1, 2, 4, 8, 16, 24, 40)}
    rights |= {20: [1, 2, 4, 8, 16, 20], 9: [1, 2, 4, 8, 9], 7: [1, 2, 4, 7], 3: [1, 2, 3]}
    for largest, sizes in rights.items():
        got = part.padded_sizes(largest)
        expect_equal(list(got), sizes, f"padded_sizes({largest})", why=SIZES)
    for largest in range(1, 41):
        sizes = sorted({*(n for n in eights if n <= largest), largest})
        got = list(part.padded_sizes(largest))
        expect_equal(got, sizes, f"padded_sizes({largest})", why=SIZES)
        foreign = {type(size).__name__ for size in got if not isinstance(size, int)}
        expect(not foreign, f"padded_sizes({largest}) has sizes of {foreign}", why=INTEGERS)


@task("17.1")
def test_size_of_a_step(part: Any) -> None:
    """`size_for` gives the smallest size that holds a step, which may be exactly as large."""
    for numbers, most in (((1, 2, 4, 8, 16, 20), 20), ((12,), 12), ((3, 7), 7)):
        sizes = alone(*numbers)
        for rows in range(1, most + 1):
            right = Size(min(size for size in numbers if size >= rows))
            got = part.size_for(sizes, Size(rows))
            expect_equal(
                got, right, f"size_for(sizes of {numbers} decodes, {rows} decodes)", why=EXACT
            )


@task("17.1")
def test_size_of_a_step_with_chunks(part: Any) -> None:
    """A size holds a step if there is room for its decodes, its tokens of chunks, and its chunks."""
    sizes = [*alone(1, 2, 4), Size(0, 8, 4), Size(8), Size(4, 8, 4), Size(8, 8, 4), Size(4, 16, 8)]
    for needed, right in (
        (Size(0, 3, 1), 3),
        (Size(1, 3, 1), 5),
        (Size(4, 8, 4), 5),
        (Size(5, 8, 4), 6),
        (Size(4, 9, 2), 7),
        (Size(4, 8, 5), 7),
        (Size(3), 2),
        (Size(2, 0, 1), 5),
    ):
        got = part.size_for(sizes, needed)
        what = f"size_for({[tuple(size) for size in sizes]}, {tuple(needed)})"
        expect_equal(got, sizes[right], what, why=ROOM)


@task("17.1")
def test_no_size(part: Any) -> None:
    """`size_for` gives None for a step that no size holds."""
    for sizes, needed in (
        (alone(1, 2, 4), Size(5)),
        (alone(1, 2, 4), Size(1, 2, 1)),
        ([Size(4), Size(2, 8, 4)], Size(2, 9, 1)),
        ([Size(4), Size(2, 8, 4)], Size(3, 4, 1)),
    ):
        got = part.size_for(sizes, needed)
        what = f"size_for({[tuple(size) for size in sizes]}, {tuple(needed)})"
        expect_equal(got, None, what, why=NONE)


def why_missed(sizes: list[Size], needed: Size, holding: list[Size], got: Any) -> str:
    """Which order was taken for that of the sizes, if one alone explains what came out."""
    found = list[str]()
    for name in Size._fields:
        numbers = [getattr(size, name) for size in sizes]
        at = bisect_left(numbers, getattr(needed, name))
        if numbers != sorted(numbers) and got == (sizes[at] if at < len(sizes) else None):
            found.append(
                f"Sizes stand in the order of their rows. Their {name} do not ascend, {numbers}: a "
                "search by halves in those goes past the size that holds the step."
            )
        if len(holding) > 1 and got == min(holding, key=lambda size: getattr(size, name)):
            found.append(
                f"This is the one with the fewest {name} of those with room. The first in the order of "
                "the sizes has fewer rows in all."
            )
    return found[0] if len(found) == 1 else FIRST


@task("17.1")
def test_any_sizes(part: Any) -> None:
    """`size_for` gives the first size with room for the step, whatever kinds of sizes there are."""
    any_sizes(part)


@examples(60)
@given(data=st.data())
def any_sizes(part: Any, data: st.DataObject) -> None:
    few = st.integers(0, 4)
    mixed = st.tuples(few, st.integers(4, 12), st.integers(1, 4))
    kinds = st.integers(1, 9).map(Size) | mixed.map(lambda each: Size(*each))
    sizes = data.draw(st.lists(kinds, min_size=1, max_size=6, unique_by=lambda size: size.rows))
    sizes.sort(key=lambda size: size.rows)
    chunks = data.draw(st.integers(0, 2))
    tokens = data.draw(st.integers(2 * chunks, 9)) if chunks else 0
    needed = Size(data.draw(st.integers(0 if chunks else 1, 6)), tokens, chunks)
    holding = [
        size
        for size in sizes
        if all(there >= asked for there, asked in zip(size, needed, strict=True))
    ]
    start_script()
    what = f"size_for({[tuple(size) for size in sizes]}, {tuple(needed)})"
    got, right = part.size_for(sizes, needed), next(iter(holding), None)
    expect_equal(got, right, what, why=why_missed(sizes, needed, holding, got))
