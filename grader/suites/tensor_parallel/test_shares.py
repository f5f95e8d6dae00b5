"""Task 20.1: which rows, heads and layers a rank holds."""

from types import ModuleType

from grader.kit import Mismatch, expect, expect_equal, expect_raises, task
from grader.kit.differ import told_apart
from grader.kit.script import show
from solutions.tensor_parallel.one_process import heads, shares

GROUPS = "Query head h reads KV head h // {}."
FEWER = "With fewer KV heads than ranks, each is held by several: none is cut in pieces."
STACKED = (
    "The queries of all heads come first, then all keys, then all values: each of the three is split by "
    "heads on its own. A plain cut of the rows would give the first rank nothing but queries."
)
MODELS = [(8, 8), (8, 4), (8, 2), (8, 1), (12, 4), (32, 8), (6, 6), (6, 3)]


@task("20.1")
def test_shares_are_even_and_in_order(part: ModuleType) -> None:
    """The shares of all ranks are consecutive, differ by at most one with the larger ones first, and are
    range(total) together."""
    for size in (3, 1, 2, 4, 7):
        # First what is plain: two rows a rank, and then some more.
        for total in (2 * size, 3 * size - 1, 2 * size + 1, *range(2 * size), 50_257):
            got = [part.share(total, rank, size) for rank in range(size)]
            what = f"share({total}, rank, {size}) of each rank"
            expect(all(isinstance(one, range) for one in got), f"{what}: {got} are no ranges")
            right = shares(total, size)
            is_right = all(
                _ends(one) == _ends(other) for one, other in zip(got, right, strict=True)
            )
            if not is_right:
                where, *texts = told_apart([str(one) for one in right], [str(one) for one in got])
                expected, wrong = (text.replace("'", "") for text in texts)
                told = f"{what}: not as expected" + f", first {where}" * bool(where)
                raise Mismatch(told, expected, wrong, why_shares(got, total))


def _ends(share: range) -> tuple[int, int, int]:
    return share.start, share.stop, share.step


def why_shares(got: list[range], total: int) -> str:
    """Which rule the shares of all ranks break; "" if none of these."""
    rows, sizes = [row for share in got for row in share], [len(share) for share in got]
    if lost := set(range(total)) - set(rows):
        more = f" and {len(lost) - 1} others are" if len(lost) > 1 else " is"
        return f"Row {min(lost)}{more} in no share."
    if len(set(rows)) < len(rows):
        twice = next(row for row in rows if rows.count(row) > 1)
        return f"Row {twice} is in two shares."
    if any(share.step != 1 for share in got if len(share) > 1):
        return f"Shares are consecutive rows; here rank 0 has {show(list(got[0][:3]))}."
    if max(sizes) - min(sizes) > 1:
        return f"The shares have {show(sizes)} rows: they must differ by at most one."
    return "The larger ones come first." if sizes != sorted(sizes, reverse=True) else ""


@task("20.1")
def test_heads_stay_with_the_kv_head_that_they_read(part: ModuleType) -> None:
    """A rank holds consecutive query heads, and just those KV heads that they read."""
    for num_heads, num_kv_heads in MODELS:
        for size in (1, 2, 3, 4, 6, 8):
            if num_heads % size or num_kv_heads % size:
                continue
            _expect_heads(
                part, num_heads, num_kv_heads, size, GROUPS.format(num_heads // num_kv_heads)
            )


@task("20.1")
def test_fewer_kv_heads_than_ranks_are_repeated(part: ModuleType) -> None:
    """With fewer KV heads than ranks, several ranks hold the same KV head."""
    for num_heads, num_kv_heads, size in [(8, 2, 4), (8, 1, 4), (8, 2, 8), (32, 8, 16), (12, 1, 3)]:
        _expect_heads(part, num_heads, num_kv_heads, size, FEWER)


def _expect_heads(part: ModuleType, num_heads: int, num_kv_heads: int, size: int, why: str) -> None:
    got = [part.share_heads(num_heads, num_kv_heads, rank, size) for rank in range(size)]
    for rank, (right, held) in enumerate(
        zip(heads(num_heads, num_kv_heads, size), got, strict=True)
    ):
        call = f"share_heads({num_heads}, {num_kv_heads}, {rank}, {size})"
        expect_equal(list(held[0]), right[0], f"{call}, the query heads")
        what = f"{call}, the KV heads of query heads {right[0][0]} to {right[0][-1]}"
        expect_equal(list(held[1]), right[1], what, why=why)
    what = f"share_heads({num_heads}, {num_kv_heads}, rank, {size}) of each rank"
    are_ranges = all(isinstance(one, range) for pair in got for one in pair)
    expect(are_ranges, f"{what}: {got} are no ranges")


@task("20.1")
def test_heads_that_do_not_fit_are_refused(part: ModuleType) -> None:
    """share_heads raises ValueError, which names the numbers, unless size divides num_heads, and divides
    num_kv_heads or is a multiple of it."""
    why = "Either each rank has as many KV heads, or each KV head is on as many ranks."
    for num_heads, num_kv_heads, size in [(6, 6, 4), (14, 2, 4), (9, 3, 2), (12, 3, 2), (12, 4, 6)]:
        call = f"share_heads({num_heads}, {num_kv_heads}, 0, {size})"
        said = ""
        with expect_raises(ValueError, call, why=why):
            try:
                part.share_heads(num_heads, num_kv_heads, 0, size)
            except ValueError as error:
                said = str(error)
                raise
        for number in (num_heads, num_kv_heads, size):
            expect(str(number) in said, f"{call}: its message does not name {number}: {said!r}")


@task("20.1")
def test_rows_of_a_stacked_weight_follow_the_heads(part: ModuleType) -> None:
    """qkv_rows are the rows of a rank's query heads, of its KV heads' keys, and of their values."""
    for num_heads, num_kv_heads, head_dim, size in [
        (4, 4, 1, 2), (4, 2, 2, 2), (8, 2, 16, 4), (12, 4, 5, 1), (8, 1, 3, 4),
    ]:  # fmt: skip
        rows: dict[tuple[str, int], list[int]] = {}
        for kind, count in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads)):
            for head in range(count):
                first = len(rows) * head_dim
                rows[kind, head] = list(range(first, first + head_dim))
        expected = [
            tuple(
                [row for head in held for row in rows[kind, head]]
                for kind, held in (("q", queries), ("k", keys), ("v", keys))
            )
            for queries, keys in heads(num_heads, num_kv_heads, size)
        ]
        arguments = f"{num_heads}, {num_kv_heads}, {head_dim}"
        got = [
            tuple(map(list, part.qkv_rows(num_heads, num_kv_heads, head_dim, rank, size)))
            for rank in range(size)
        ]
        what = f"qkv_rows({arguments}, rank, {size}) of each rank"
        expect_equal(got, expected, what, why=STACKED)


@task("20.1")
def test_stacked_rows_that_do_not_fit_are_refused(part: ModuleType) -> None:
    """qkv_rows raises ValueError where share_heads does."""
    with expect_raises(ValueError, "qkv_rows(6, 6, 8, 0, 4)"):
        part.qkv_rows(6, 6, 8, 0, 4)
