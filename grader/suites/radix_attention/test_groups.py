"""Task 5.1: which sequences are attended together."""

from collections import Counter
from importlib import import_module
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.expect import claiming
from grader.kit.script import show
from grader.suites.radix_attention.batches import lengths_of
from grader.suites.radix_attention.words import in_order, repeated
from solutions.radix_attention.grouping import MAX_WASTE, MIN_GROUP
from solutions.radix_attention.grouping import groups_of as reference_groups_of

Lens = list[tuple[int, int]]

MOST_CHARACTERS = 60
"""Of the lengths of a group that are shown one by one."""
NO_MEMBERS = (
    "A group is attended in one call: its first sequence says how many queries each has, and its "
    "longest how wide its table is."
)
ROUNDED = (
    "{keys} keys are more than {share:g}, which is 1 - MAX_WASTE of {longest}. With small lengths your "
    "border is right. Here the share is {exact:.6g}: rounded, it is {rounded:g}."
)
NOT_FROM_THE_LONGEST = (
    "Groups are made from the longest sequence down. This one begins with a sequence of {first} keys, "
    "and has one of {longest} behind it."
)
AS_16_BITS = " In 16 bits {longest} is {wrapped}, and that gives just this order."
CHANGED = "Each group was as expected when it was handed out. "
SAME_LIST = f"{CHANGED}All of them are the same list: hand out a list of its own for each."
EMPTIED = f"{CHANGED}Its list was emptied after that."
OTHERWISE = f"{CHANGED}A list was changed after that."


def groups(part: ModuleType, lens: Lens) -> list[list[int]]:
    """What groups_of makes of sequences of (queries, keys), written down; a partition at least."""
    batch = lengths_of(lens)
    before = (list(batch.query_lens), list(batch.kv_lens))
    note(
        f"batch = AttentionBatch(query_lens={repeated(before[0])}, kv_lens={repeated(before[1])}, ...)"
    )
    grouping = import_module(f"{part.__name__}.grouping")
    handed, found = [], []
    for group in grouping.groups_of(batch):
        handed.append(group)
        found.append(list(group))
    note("list(groups_of(batch))")
    for group in found:
        keys = [lens[i][1] for i in group if i < len(lens)]
        number = f"{len(group)} sequence{'s' * (len(group) != 1)}"
        told = f" of {repeated(keys)} keys" if keys else ""
        if len(told) > MOST_CHARACTERS:
            told = f" of {min(keys)} to {max(keys)} keys"
        note(f"# -> [{in_order(group)}]: {number}{told}")
    with claiming("Each group has at least one sequence."):
        empty = NO_MEMBERS if lens else "The batch has no sequences: there is no group to hand out."
        expect([] not in found, "a group of no sequences", why=empty)
    expect_partition([i for group in found for i in group], len(lens))
    for group in found:
        expect(
            len({lens[i][0] for i in group}) == 1,
            f"group {group} mixes query lengths {sorted({lens[i][0] for i in group})}",
            why="The queries of a group become one tensor [n, tq, heads, d]: they need the same tq.",
        )
    if len(handed) > 1 and all(group is handed[0] for group in handed):
        why = SAME_LIST
    else:
        why = OTHERWISE if any(handed) else EMPTIED
    expect_equal(
        [list(group) for group in handed],
        found,
        "the groups, when all have been handed out",
        why=why,
    )
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


def expect_little_waste(lens: Lens, found: list[list[int]], why: str = "") -> None:
    """Beyond its MIN_GROUP longest a group has only sequences with enough of the longest's keys."""
    for group in found:
        keys = sorted((lens[i][1] for i in group), reverse=True)
        short = [length for length in keys[MIN_GROUP:] if length <= (1 - MAX_WASTE) * keys[0]]
        if short:
            padded, are = len(keys) * keys[0], "sequences" if len(short) > 1 else "sequence"
            many = "at most " * (len(short) > 1)
            why = why or _order_of(lens, group)
            raise Mismatch(
                f"a group of {len(keys)} pads {len(short)} {are} of {many}{max(short)} keys "
                f"to {keys[0]}: {padded} keys are computed for {sum(keys)}",
                f"beyond the {MIN_GROUP} longest, only more than {(1 - MAX_WASTE) * keys[0]:g} keys",
                f"{short[0]} keys",
                why
                or "Every sequence of a group is padded to the longest: padding is wasted work.",
            )


def _order_of(lens: Lens, group: list[int]) -> str:
    """Whether a group begins with another than its longest, and whether 16 bits make it so."""
    keys = [lens[i][1] for i in group]
    longest = max(keys)
    if keys[0] == longest:
        return ""
    narrow = [_in_16_bits(each) for each in keys]
    is_narrow = narrow == sorted(narrow, reverse=True) and keys != sorted(keys)
    bits = AS_16_BITS.format(longest=longest, wrapped=_in_16_bits(longest)) * is_narrow
    return NOT_FROM_THE_LONGEST.format(first=keys[0], longest=longest) + bits


def _in_16_bits(number: int) -> int:
    return (number + 2**15) % 2**16 - 2**15


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
    """More than 1 - MAX_WASTE of the longest's keys is enough for its group; just as many are not."""
    for longest, lengths in (
        (100, [75]),
        (100, [76]),
        (100, [76, 75]),
        (100, [80, 50]),
        (10, [8]),
        (10, [7]),
        (40_000, [39_000, 30_000]),
        (40_000, [30_001]),
        (40_000, [30_000]),
    ):
        start_script()
        lens = [(2, longest)] * MIN_GROUP + [(2, keys) for keys in lengths]
        found = groups(part, lens)
        expect_little_waste(lens, found)
        share = (1 - MAX_WASTE) * longest
        near = [keys for keys in lengths if share < keys < share * 1.001]
        why = ROUNDED.format(keys=near[0], share=share, longest=longest, exact=near[0] / longest,
                             rounded=1 - MAX_WASTE) if near else ""  # fmt: skip
        expect_few_calls(lens, found, why)


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
