"""Task 5.1: which sequences are attended together."""

from collections import Counter
from importlib import import_module
from itertools import groupby
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, task
from grader.kit.expect import claiming
from grader.kit.script import show
from grader.suites.radix_attention.batches import lengths_of
from solutions.radix_attention.grouping import MAX_WASTE, MIN_GROUP
from solutions.radix_attention.grouping import groups_of as reference_groups_of

Lens = list[tuple[int, int]]

MOST_MEMBERS = 12
"""Of a group that are shown."""
NO_MEMBERS = (
    "A group is attended in one call: its first sequence says how many queries each has, and its "
    "longest how wide its table is. A batch without sequences has no groups."
)
SAME_LIST = (
    "A group was as expected when it was handed out, and changed while the next one was made: it is "
    "the same list, filled or emptied again. Hand out a list of its own for each group."
)


def groups(part: ModuleType, lens: Lens) -> list[list[int]]:
    """What groups_of makes of sequences of (queries, keys), written down; a partition at least."""
    batch = lengths_of(lens)
    before = (list(batch.query_lens), list(batch.kv_lens))
    note(f"batch = AttentionBatch(query_lens={_told(before[0])}, kv_lens={_told(before[1])}, ...)")
    grouping = import_module(f"{part.__name__}.grouping")
    handed, found = [], []
    for group in grouping.groups_of(batch):
        handed.append(group)
        found.append(list(group))
    note("list(groups_of(batch))")
    for group in found:
        keys = [lens[i][1] for i in group if i < len(lens)]
        shown = group if len(group) <= MOST_MEMBERS else [*group[:MOST_MEMBERS], "..."]
        members = ", ".join(map(str, shown))
        told = f"sequences of {min(keys)} to {max(keys)} keys" if keys else "sequences"
        note(f"# -> [{members}]: {len(group)} {told}")
    expect([] not in found, "a group of no sequences", why=NO_MEMBERS)
    expect_partition([i for group in found for i in group], len(lens))
    for group in found:
        expect(
            len({lens[i][0] for i in group}) == 1,
            f"group {group} mixes query lengths {sorted({lens[i][0] for i in group})}",
            why="The queries of a group become one tensor [n, tq, heads, d]: they need the same tq.",
        )
    expect_equal(
        [list(group) for group in handed], found, "the groups, when all have been handed out",
        why=SAME_LIST,
    )  # fmt: skip
    expect(
        (batch.query_lens, batch.kv_lens) == before, "groups_of changed the batch's own lists",
        why="The lists belong to the batch: sorted in place, they name other sequences.",
    )  # fmt: skip
    return found


def expect_partition(members: list[int], count: int) -> None:
    """members: of all groups together. count: of the batch's sequences."""
    if sorted(members) == list(range(count)):
        return
    times = Counter(members)
    missing = [i for i in range(count) if not times[i]]
    others = sorted(i for i in times if not 0 <= i < count)
    twice = sorted(i for i in times if times[i] > 1)
    with claiming("Every sequence of the batch is in one group, and once."):
        expect(not others, f"in a group, but no sequence of the batch: {show(others)}")
        expect(
            not missing, f"{len(missing)} of {count} sequences are in no group: {show(missing)}",
            why="Every sequence must be attended, and once: a missing one gets no output.",
        )  # fmt: skip
        expect(not twice, f"in more than one group, or twice in one: {show(twice)}")


def _told(lengths: list[int]) -> str:
    """A list as Python that is short where numbers repeat: [8] * 20 + [400] + [8] * 19."""
    runs = [(value, len(list(run))) for value, run in groupby(lengths)]
    if len(runs) > len(lengths) / 2:
        return str(lengths)
    return " + ".join(f"[{value}]" + f" * {count}" * (count > 1) for value, count in runs)


def expect_little_waste(lens: Lens, found: list[list[int]], why: str = "") -> None:
    """Beyond its MIN_GROUP longest a group has only sequences with enough of the longest's keys."""
    for group in found:
        keys = sorted((lens[i][1] for i in group), reverse=True)
        short = [length for length in keys[MIN_GROUP:] if length <= (1 - MAX_WASTE) * keys[0]]
        if short:
            padded = len(keys) * keys[0]
            raise Mismatch(
                f"a group of {len(keys)} pads {len(short)} sequences of at most {max(short)} keys "
                f"to {keys[0]}: {padded} keys are computed for {sum(keys)}",
                f"beyond the {MIN_GROUP} longest, only more than {(1 - MAX_WASTE) * keys[0]:g} keys",
                f"{short[0]} keys",
                why
                or "Every sequence of a group is padded to the longest: padding is wasted work.",
            )


def expect_few_calls(lens: Lens, found: list[list[int]], why: str = "") -> None:
    """No more groups than the rule makes when each takes all that it may."""
    needed = len(list(reference_groups_of(lengths_of(lens))))
    if len(found) > needed:
        raise Mismatch(
            f"{len(lens)} sequences are attended in {len(found)} calls",
            _counted(needed),
            _counted(len(found)),
            why or "Each group costs a call in every layer: it takes all sequences that it may.",
        )


def _counted(number: int) -> str:
    return "1 group" if number == 1 else f"{number} groups"


@task("5.1")
def test_only_equal_query_lengths_go_together(part: ModuleType) -> None:
    """Every sequence is in one group, with others of the same number of queries."""
    groups(part, [(6, 6), (1, 12), (3, 3), (1, 5), (3, 11)])


@task("5.1")
def test_decodes_of_like_length_are_one_call(part: ModuleType) -> None:
    """Forty decodes of about the same length are one group."""
    lens = [(1, 90 + i % 10) for i in range(40)]
    found = groups(part, lens)
    expect_few_calls(
        lens, found, why="One call for each sequence is what a batch is there to avoid."
    )


@task("5.1")
def test_a_few_sequences_go_together_whatever_their_lengths(part: ModuleType) -> None:
    """Up to MIN_GROUP sequences are one group, long and short."""
    lens = [(1, 5), (1, 400), (1, 90), (1, 30)]
    why = f"For {MIN_GROUP} sequences or fewer a call costs more than the padding it saves."
    expect_few_calls(lens, groups(part, lens), why)
    for queries in range(2, 8):  # however many there are with other numbers of queries
        lens += [(queries, queries + before) for before in (0, 500, 40, 90, 200, 10)]
    expect_few_calls(lens, groups(part, lens), why)


@task("5.1")
def test_one_long_sequence_does_not_pad_many_short_ones(part: ModuleType) -> None:
    """Beyond the first MIN_GROUP, a short sequence is not padded to the length of a long one."""
    lens = [(1, 8)] * 20 + [(1, 400)] + [(1, 8)] * 19
    found = groups(part, lens)
    padded = sum(len(group) * max(lens[i][1] for i in group) for group in found)
    expect(
        padded <= MIN_GROUP * 400 + 32 * 8,
        f"padded to the longest of each group the 712 keys of 40 sequences become {padded}",
        why="Sequences of one group are padded to its longest: 39 short ones pay for one long one.",
    )
    expect_few_calls(lens, found)


@task("5.1")
def test_waste_is_measured_against_the_longest(part: ModuleType) -> None:
    """Lengths that fall in small steps are no chain: each is compared with the group's longest."""
    lens = [(1, 400)] * MIN_GROUP + [(1, 380 - 20 * i) for i in range(19)]
    why = (
        "Each is nearly as long as the one before it, but the last has a twentieth of the first's."
    )
    found = groups(part, lens)
    expect_little_waste(lens, found, why)
    expect_few_calls(lens, found)


@task("5.1")
def test_the_border_of_waste(part: ModuleType) -> None:
    """A sequence with exactly 1 - MAX_WASTE of the longest's keys is too short."""
    for longest, lengths in (
        (100, [75]),
        (100, [76]),
        (100, [76, 75]),
        (100, [80, 50]),
        (10, [8]),
        (10, [7]),
        (40_000, [30_001]),
        (40_000, [30_000]),
    ):
        lens = [(2, longest)] * MIN_GROUP + [(2, keys) for keys in lengths]
        found = groups(part, lens)
        expect_little_waste(lens, found)
        expect_few_calls(lens, found)


@st.composite
def any_lens(draw: st.DrawFn) -> Lens:
    """Many sequences of few query lengths, some much longer than others."""
    longest = draw(st.sampled_from([12, 40, 300, 70_000]))
    some = st.tuples(st.sampled_from([1, 1, 2, 5]), st.integers(0, longest))
    return [(queries, queries + before) for queries, before in draw(st.lists(some, max_size=40))]


@task("5.1")
@examples(150)
@given(lens=any_lens())
def test_any_batch_is_grouped(part: ModuleType, lens: Lens) -> None:
    """Any batch falls into few groups of equal query length, with little padding."""
    found = groups(part, lens)
    expect_little_waste(lens, found)
    expect_few_calls(lens, found)
