"""Task 16.5: the longest common prefix."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.cuda_work import expect_whole_sectors, work_of

BLOCK = "128 threads compare 128 entries at a time, in 4 warps of 32"


def prefixes(part: ModuleType, tokens: list[int], keys: list[list[int]]) -> list[int]:
    """What the kernel under test finds; rows are padded with what would go on equal."""
    width = max((len(key) for key in keys), default=0) + 3
    table = torch.zeros(len(keys), width, dtype=torch.int32)
    for row, key in enumerate(keys):
        padded = (key + tokens[len(key) :] + [0] * width)[:width]
        table[row] = torch.tensor(padded, dtype=torch.int32)
    lens = torch.tensor([len(key) for key in keys], dtype=torch.int32)
    asked = torch.tensor(tokens, dtype=torch.int32)
    note(f"longest_common_prefix: {len(tokens)} tokens, keys of {lens.tolist()} entries")
    found = part.PrefixKernel().longest_common_prefix(asked, table, lens)
    expect(found.dtype == torch.int32, f"the result is {found.dtype}, not int32")
    return [int(count) for count in found]


def differing_at(place: int, length: int) -> list[int]:
    """1, 2, 3, ..., with one entry replaced."""
    return [-5 if i == place else i + 1 for i in range(length)]


@task("16.5")
def test_short_keys(part: ModuleType) -> None:
    """Each row is counted up to its first difference from the tokens."""
    keys = [[7, 8, 9, 1], [7, 8, 1, 4], [7, 1, 9, 4], [1, 8, 9, 4], [7, 8, 9, 4]]
    why = "An equal entry behind a difference does not count."
    expect_equal(prefixes(part, [7, 8, 9, 4], keys), [3, 2, 1, 0, 4], "common prefixes", why=why)


@task("16.5")
def test_token_0_is_a_token(part: ModuleType) -> None:
    """Every number is compared alike, 0 and negative ones too."""
    why = "No number marks padding: key_lens says where a row ends."
    got = prefixes(part, [0, 5, 0, -1, 7], [[0, 5, 0, -1, 7], [0, 5, 0, -2, 7], [0, 0]])
    expect_equal(got, [5, 3, 1], "common prefixes of rows with 0 and -1", why=why)


@task("16.5")
def test_a_row_ends_at_its_length(part: ModuleType) -> None:
    """What stands behind a row's real length does not count, nor what is behind the tokens."""
    tokens = list(range(1, 41))
    why = "Rows are padded with what would match: only key_lens[i] entries are real."
    got = prefixes(part, tokens, [tokens[:30], tokens[:1], []])
    expect_equal(got, [30, 1, 0], "common prefixes with rows of 30, 1 and 0 entries", why=why)
    got = prefixes(part, tokens[:2], [tokens])
    expect_equal(got, [2], "2 tokens against a key of 40", why="There are no more tokens.")


@task("16.5")
def test_a_difference_in_any_warp(part: ModuleType) -> None:
    """The first difference counts, in whichever warp or turn of the thread block it is."""
    places = [0, 1, 30, 31, 32, 33, 63, 64, 95, 96, 127, 128, 129, 160, 255, 256, 299, 300]
    keys = [differing_at(place, 300) for place in places]
    why = (
        f"{BLOCK}: a warp without a difference adds 32, the first one that has one ends the count, "
        "and 4 warps without one are followed by the next 128 entries."
    )
    got = prefixes(part, differing_at(-1, 300), keys)
    expect_equal(got, places, "common prefixes of rows that differ at these places", why=why)


@task("16.5")
def test_long_rows(part: ModuleType) -> None:
    """A row may be of any length: turn follows turn until one has a difference."""
    places = [1100, 1060, 1024]
    keys = [differing_at(place, 1100) for place in places]
    got = prefixes(part, differing_at(-1, 1100), keys)
    expect_equal(
        got, places, "common prefixes of rows of 1,100 entries", why=f"{BLOCK}, in 9 turns."
    )


@task("16.5")
def test_two_differences(part: ModuleType) -> None:
    """Of several differences the first counts, whatever warp sees its own first."""
    keys = []
    for first, second in ((40, 3 + 64), (5, 100), (33, 34), (70, 200)):
        key = differing_at(first, 260)
        key[second] = -9
        keys.append(key)
    got = prefixes(part, differing_at(-1, 260), keys)
    expect_equal(got, [40, 5, 33, 70], "common prefixes of rows with two differences", why=BLOCK)


@task("16.5")
def test_no_more_is_read_than_needed(part: ModuleType) -> None:
    """Reading stops after the turn in which a row differs, and neighbours read neighbours."""
    tokens, key = differing_at(-1, 8192), differing_at(3, 8192)
    work = work_of(lambda: prefixes(part, tokens, [key]))
    # A block may have more threads, which compare as many entries in a turn.
    turn = min(max(work.threads, 128), 1024)
    expect(
        work.loads.bytes < 3000 * turn // 128,
        f"{work.loads.bytes} bytes were loaded for a row that differs at entry 3 of 8,192",
        why=f"{turn} threads compare {turn} entries at a time: one turn loads {turn} entries of both, "
        f"{8 * turn:,} bytes.",
    )
    expect_whole_sectors(work, f"comparing {turn} entries")


@task("16.5")
def test_no_keys_and_no_tokens(part: ModuleType) -> None:
    """No rows give an empty result; no tokens give zeros."""
    got = prefixes(part, [], [[1, 2], []])
    expect_equal(got, [0, 0], "the prefixes of no tokens", why="Every row has a result, also 0.")
    expect_equal(prefixes(part, [1], []), [], "the prefixes of no rows")


@task("16.5")
@examples(15)
@given(
    length=st.integers(0, 200),
    rows=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 210)), min_size=1, max_size=4),
)
def test_any_keys(part: ModuleType, length: int, rows: list[tuple[int, int]]) -> None:
    """Any rows: the count is that of a loop over entries."""
    tokens = differing_at(-1, length)
    keys = [differing_at(place, size) for size, place in rows]
    right = [min(length, size, place) for size, place in rows]
    expect_equal(
        prefixes(part, tokens, keys), right, f"common prefixes with (length, place) {rows}"
    )


@task("16.5")
def test_tokens_differ_in_any_bit(part: ModuleType) -> None:
    """All 32 bits of two tokens are compared: those of large vocabularies differ in the upper ones."""
    tokens = [2**24 + 1] * 33
    keys = [
        [*tokens[:i], tokens[i] ^ (1 << i if i < 31 else -(2**31)), *tokens[i + 1 :]]
        for i in range(32)
    ]
    why = "Row i differs from the tokens in bit i of entry i alone."
    expect_equal(prefixes(part, tokens, keys), list(range(32)), "common prefixes", why=why)


@task("16.5")
def test_threads_compare_at_once(part: ModuleType) -> None:
    """Entries are compared side by side, a warp's 32 with one instruction."""
    tokens = differing_at(-1, 2048)
    work = work_of(lambda: prefixes(part, tokens, [tokens]))
    least = 2 * 2048 // 32
    expect(
        work.loads.requests <= 2 * least,
        f"2,048 equal entries take {work.loads.requests:,} loads of a warp; {least} are enough",
        why="A thread that compares one entry after the other waits for each of its loads, and its warp "
        f"with it. {BLOCK}.",
    )
