"""Task 17.2: a step in a buffer of fixed size."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import expect_unchanged
from solutions import cuda_graphs as reference
from yaie.core.contracts.graphs import Size
from yaie.core.step import Ints, StepInput

JUNK = 41
PADDING = {
    "token_ids": "token 0",
    "positions": "position 0",
    "slots": "slot -1",
    "seats": "the seat of padding",
    "kv_lens": "0 keys",
    "table_seats": "the seat of padding",
    "table_columns": "column 0",
    "table_blocks": "block 0",
}
STALE = (
    "The buffer is memory that is given out again: behind the step it still holds the step before, "
    "whose slots would be written and whose seats would draw once more. Write every row to its end."
)
WHOSE = (
    "A row of padding runs like any other. It must belong to the seat of nobody, attend to 0 keys and "
    "store at -1; any other number is somebody's."
)
SENDERS = "The step is the sender's: write into `parts` only."
LENGTH = "A token at position p attends to p + 1 keys: those before it, and its own."
CHUNK_LENGTH = (
    "A chunk has as many keys as its last token attends to: all tokens before the chunk, and those of "
    "the chunk itself."
)
POSITIONS = (
    "Each token has a position of its own: those of a chunk of n tokens are start, start + 1, and so on "
    "to start + n - 1. Here stands the start of each chunk alone, and padding behind them."
)
ENTRIES = (
    "How many new table entries there are has nothing to do with how many rows: most steps bring "
    "none, a step at the end of a block brings one for that seat."
)
ZONES = (
    "Decodes stand at the front, and chunks from row `size.decodes` on, however few decodes there are: "
    "a graph reads each zone where it was recorded. A sequence's place is counted likewise."
)
BEGINS = (
    "Attention counts a chunk's queries from where it begins to where the next one begins. The last "
    "chunk ends at its last token, not at the end of the rows; a chunk of padding begins there and "
    "has no tokens."
)
MARKERS = (
    "{marker} is `~{seat}`: the device has drawn the last token of seat {seat}, and reads it there. The "
    "marker is sent as it is{zero}."
)
ELSEWHERE = "They stand from index {at} of the part on, not from {zone}."

ONCE = "Slots are looked up on the host, in every step: once is enough for all of its tokens."
WIDE = (
    "All parts are int32, and so is what a step brings: positions, slots, seats, blocks and tokens of a "
    "large server do not fit fewer bits, nor a float32."
)

LOOKED_UP = (
    "In a size without chunks the device has every token and no part for them: looking them up "
    "takes the host time, in every step."
)


@dataclass
class Told:
    """What fill asks of a machine. ids: of each token, as control has sent them. looked_up: whether they
    were asked for."""

    places: Ints
    ids: Ints
    nobody: int
    looked_up: bool = False
    num_asked: int = 0

    def slots(self, step: StepInput) -> Ints:
        self.num_asked += 1
        return self.places

    def token_ids(self, step: StepInput) -> Ints:
        self.looked_up = True
        return self.ids


def step_of(
    shares: Sequence[tuple[int, int, int]], entries: Sequence[tuple[int, int, int]] = ()
) -> StepInput:
    """shares: (seat, start, tokens), single tokens first."""
    columns = np.array(entries, dtype=np.int32).reshape(-1, 3).T.copy()
    seats, starts, counts = np.array(shares, dtype=np.int32).reshape(-1, 3).T.copy()
    return StepInput(
        1,
        seats,
        starts,
        counts,
        np.ones(len(seats), np.bool_),
        table_seats=columns[0],
        table_columns=columns[1],
        table_blocks=columns[2],
    )


def told_of(step: StepInput, nobody: int, first: int = 200) -> Told:
    """Slots and tokens, all different, and `~seat` for each decode, and for the first token of every
    other chunk, which has drafts behind it. first: the number from which tokens are counted."""
    count = int(step.num_tokens.sum())
    ids = np.arange(first, first + count, dtype=np.int32)
    begins = step.num_tokens.cumsum() - step.num_tokens
    known = np.arange(len(begins)) >= step.num_decodes
    known[step.num_decodes + 1 :: 2] = False
    ids[begins[~known]] = ~step.seats[~known]
    return Told(np.arange(first + 100, first + 100 + 2 * count, 2, dtype=np.int32), ids, nobody)


def fill_and_check(part: Any, size: Size, step: StepInput, nobody: int, first: int = 200) -> None:
    machine = told_of(step, nobody, first)
    memory = np.full(reference.num_uploaded(size), JUNK, dtype=np.int32)
    shares = np.stack((step.seats, step.starts, step.num_tokens), 1).tolist()
    entries = np.stack((step.table_seats, step.table_columns, step.table_blocks), 1).tolist()
    note(
        f"fill of {tuple(size)} (decodes, tokens, chunks): (seat, start, tokens) {shares}, slots "
        f"{machine.places.tolist()}, nobody {nobody}, table entries {entries}"
    )
    before, told_before = deepcopy(step), deepcopy(machine)
    parts = reference.parts_of(memory, size)
    part.fill(parts, size, step, machine)
    expect_unchanged(step, before, "fill", SENDERS)
    for name in ("places", "ids"):
        now, then = getattr(machine, name).tolist(), getattr(told_before, name).tolist()
        expect_equal(now, then, "what the machine has told, after `fill`", why=SENDERS)
    expect(machine.num_asked == 1, f"`machine.slots` is called {machine.num_asked} times", why=ONCE)
    if not size.chunks:
        expect(not machine.looked_up, "`machine.token_ids` is called", why=LOOKED_UP)
    expect_filled(parts, size, before, told_before)


def expect_filled(parts: Any, size: Size, step: StepInput, machine: Told) -> None:
    n, new, nobody = step.num_decodes, len(step.table_seats), machine.nobody
    kv_lens = step.starts + step.num_tokens
    for name, values, padding in (
        ("seats", step.seats, nobody),
        ("kv_lens", kv_lens, 0),
        ("positions", step.positions, 0),
        ("slots", machine.places, -1),
        ("token_ids", machine.ids, 0),
    ):
        got = getattr(parts, name).tolist()
        if name == "token_ids" and not size.chunks:
            continue  # an empty part
        if size.chunks:
            zone = got[size.decodes :]
            why = why_wrong(name, got, size.decodes, values[n:].tolist()) or CHUNK_LENGTH * (
                name == "kv_lens"
            )
            starts = step.starts[n:].tolist()
            if name == "positions" and zone == starts + [0] * (len(zone) - len(starts)):
                why = POSITIONS
            expect_part(name, "chunk", zone, values[n:].tolist(), padding, why)
        zone = got[: size.decodes]
        why = why_wrong(name, got, 0, values[:n].tolist()) or LENGTH * (name == "kv_lens")
        expect_part(name, "decode", zone, values[:n].tolist(), padding, why)
    expect_begins(parts.begins.tolist(), size, step)
    for name, values, padding in (
        ("table_seats", step.table_seats, nobody),
        ("table_columns", step.table_columns, 0),
        ("table_blocks", step.table_blocks, 0),
    ):
        got = getattr(parts, name).tolist()
        expect_part(name, "entry", got[:new] + got[new:], values.tolist(), padding, ENTRIES)


def why_narrow(got: Ints, right: Ints) -> str:
    """Which type the numbers of a part went through, if one makes of each what came out."""
    first = int((got != right).nonzero()[0][0])
    found, exact = int(got[first]), int(right[first])
    for kind in (np.int16, np.uint16, np.int8, np.uint8):
        if np.array_equal(right.astype(kind).astype(got.dtype), got):
            bits = np.iinfo(kind).bits
            return f"{found} is what the low {bits} bits hold of {exact:,}. All parts are int32."
    for half in (np.float32, np.float16):
        with np.errstate(all="ignore"):
            if np.array_equal(right.astype(half).astype(np.int64), got):
                return f"{exact:,} was rounded to {np.dtype(half)}. All parts are int32."
    return WIDE


def why_wrong(name: str, got: list[int], zone: int, values: list[int]) -> str:
    """What a part shows in place of the values that stand from `zone` on."""
    count = len(values)
    found = got[zone : zone + count]
    wrong = [at for at in range(len(found)) if found[at] != values[at]]
    if name == "token_ids" and wrong and all(values[at] < 0 for at in wrong):
        first = wrong[0]
        zero = ", not as 0" if found[first] == 0 else ""
        return MARKERS.format(marker=values[first], seat=~values[first], zero=zero)
    places = [at for at in range(len(got) - count + 1) if got[at : at + count] == values]
    if count and wrong and len(places) == 1:
        return f"{ELSEWHERE.format(at=places[0], zone=zone)} {ZONES}"
    return ""


def expect_part(
    name: str, kind: str, got: list[int], values: list[int], padding: int, why: str
) -> None:
    """One zone of a part: the step's own values, and padding behind them."""
    which = {"decode": "of decodes", "chunk": "of chunks", "entry": "of the new entries"}[kind]
    count = len(values)
    expect_equal(got[:count], values, f"`{name}` {which}", why=why)
    if got[count:] != [padding] * (len(got) - count):
        stale = JUNK in got[count:]
        expect(
            False,
            f"`{name}` behind those {which} is {got[count:]}, and padding has {PADDING[name]} "
            f"({padding})",
            why=STALE if stale else WHOSE,
        )


def expect_begins(got: list[int], size: Size, step: StepInput) -> None:
    ends = (size.decodes + np.cumsum(step.num_tokens[step.num_decodes :])).tolist()
    right = [*range(size.decodes + 1), *ends]
    right += right[-1:] * (size.sequences + 1 - len(right))
    first = size.decodes + 1
    expect_equal(
        got[:first], right[:first], "`begins` of decodes and of the first chunk", why=BEGINS
    )
    gap = size.decodes - step.num_decodes
    why = BEGINS
    if gap and got[first:] == [begin - gap for begin in right[first:]]:
        why = (
            f"All are {gap} too small: they are counted from the step's {step.num_decodes} decodes "
            f"on. Chunks begin at row {size.decodes}, `size.decodes`."
        )
    expect_equal(got[first:], right[first:], "`begins` behind the first chunk's", why=why)


@task("17.2")
def test_a_step(part: Any) -> None:
    """A step's seats, lengths, positions and slots stand in front, its table entries in their parts."""
    step = step_of([(4, 9, 1), (0, 2, 1), (7, 16, 1)], [(7, 4, 33)])
    fill_and_check(part, Size(4), step, 12)


@task("17.2")
def test_padding(part: Any) -> None:
    """Behind the step every row is padding, whatever the buffer held before."""
    fill_and_check(part, Size(8), step_of([(3, 5, 1)]), 12)
    start_script()
    fill_and_check(part, Size(2), step_of([(1, 0, 1), (2, 1, 1)], [(1, 0, 5)]), 6)


@task("17.2")
def test_more_entries_than_rows_of_the_step(part: Any) -> None:
    """A step of one row may bring as many table entries as its size has rows."""
    fill_and_check(part, Size(4), step_of([(2, 8, 1)], [(2, 0, 6), (2, 1, 7), (2, 2, 1)]), 9)


@task("17.2")
def test_a_step_with_chunks(part: Any) -> None:
    """Chunks stand behind the rows of decodes, and end at their last token."""
    step = step_of([(4, 9, 1), (5, 0, 3), (1, 6, 2)], [(5, 0, 8)])
    fill_and_check(part, Size(2, 8, 3), step, 12)
    start_script()
    fill_and_check(
        part, Size(4, 5, 2), step, 12
    )  # as many tokens, and chunks, as there is room for
    start_script()
    fill_and_check(part, Size(1, 6, 4), step_of([(3, 0, 2), (2, 4, 2)]), 12)  # no decodes
    start_script()
    fill_and_check(part, Size(2, 4, 2), step_of([(3, 0, 1)]), 12)  # no chunks


@task("17.2")
def test_any_step(part: Any) -> None:
    """Any step of any size, with any entries."""
    any_step(part)


@examples(40)
@given(data=st.data())
def any_step(part: Any, data: st.DataObject) -> None:
    tokens = data.draw(st.sampled_from([0, 0, 4, 9]))
    chunks = data.draw(st.integers(1, 4)) if tokens else 0
    lens: list[int] = []
    for _ in range(data.draw(st.integers(0, chunks))):
        if (left := tokens - sum(lens)) >= 2:
            lens.append(data.draw(st.integers(2, left)))
    n = data.draw(st.integers(0 if lens else 1, 6))
    size = Size(data.draw(st.integers(max(n, 1), 8)), tokens, chunks)
    nobody = data.draw(st.integers(12, 20))
    seats = data.draw(st.permutations(range(12)))[: n + len(lens)]
    starts = data.draw(st.lists(st.integers(0, 90), min_size=len(seats), max_size=len(seats)))
    entries = data.draw(st.lists(st.tuples(*[st.integers(0, 7)] * 3), max_size=size.rows))
    shares = list(zip(seats, starts, [*[1] * n, *lens], strict=True))
    fill_and_check(part, size, step_of(shares, entries), nobody)


@task("17.2")
def test_a_value_for_each_place(part: Any) -> None:
    """`place` writes values in two zones, and padding in the rest of the part."""
    for length, values, count, zone, right in (
        (4, [7, 8], 2, 4, [7, 8, -1, -1]),
        (4, [7, 8, 9, 6], 4, 4, [7, 8, 9, 6]),
        (6, [7, 8, 9], 1, 3, [7, -1, -1, 8, 9, -1]),
        (6, [7, 8, 9], 0, 3, [-1, -1, -1, 7, 8, 9]),
        (5, [7, 8], 2, 3, [7, 8, -1, -1, -1]),
        (3, [], 0, 2, [-1, -1, -1]),
    ):
        array = np.full(length, JUNK, np.int32)
        part.place(array, np.array(values, np.int32), count, zone, -1)
        expect_equal(
            array.tolist(),
            right,
            f"a part of {length} after place(part, {values}, {count}, {zone}, -1)",
            why=STALE if JUNK in array else ZONES,
        )


@task("17.2")
def test_large_numbers(part: Any) -> None:
    """What a step brings is written as it is, however large the numbers of a server are."""
    size = Size(2, 40_000, 3)
    far = 1 << 24
    step = step_of(
        [(70_001, 300_001, 1), (70_002, 99_999, 33_001), (70_003, 5, 3)],
        [(70_002, 66_001, far + 1), (70_003, 300, far + 3)],
    )
    machine = told_of(step, 70_009, far + 1)
    memory = np.zeros(reference.num_uploaded(size), dtype=np.int32)
    note("fill of (2, 40000, 3): a decode, and chunks of 33,001 and 3 tokens, with large numbers")
    parts, rights = (reference.parts_of(each, size) for each in (memory, memory.copy()))
    part.fill(parts, size, step, machine)
    reference.fill(rights, size, step, told_of(step, 70_009, far + 1))  # type: ignore[arg-type]
    for name, got, right in zip(parts._fields, parts, rights, strict=True):
        if wrong := np.flatnonzero(got != right).tolist():
            first = wrong[0]
            expect_equal(
                int(got[first]),
                int(right[first]),
                f"`{name}` of row {first}",
                why=why_narrow(got, right),
            )
