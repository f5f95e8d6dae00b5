"""Task 17.1: the sizes that are recorded, and the size of a step."""

from typing import Any

from grader.kit import expect_equal, task

EXACT = (
    "A step takes the smallest size that is at least as large. One that is as large as a size takes "
    "that size; one row more takes the next."
)
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


@task("17.1")
def test_size_of_a_step(part: Any) -> None:
    """`size_for` gives the smallest size that holds a step, which may be exactly as large."""
    sizes = [1, 2, 4, 8, 16, 20]
    for rows in range(1, 21):
        right = min(size for size in sizes if size >= rows)
        expect_equal(part.size_for(sizes, rows), right, f"size_for({sizes}, {rows})", why=EXACT)
    expect_equal(part.size_for([12], 3), 12, "size_for([12], 3)", why=EXACT)
    expect_equal(part.size_for([3, 7], 4), 7, "size_for([3, 7], 4)", why=EXACT)
