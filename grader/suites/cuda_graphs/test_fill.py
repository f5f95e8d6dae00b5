"""Task 17.2: a step in a buffer of fixed size."""

from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import NAMES, expect_unchanged
from yaie.core.step import StepInput

JUNK = 41
PADDING = {
    "SEATS": "the seat of padding",
    "KV_LENS": "0 keys",
    "POSITIONS": "position 0",
    "SLOTS": "slot -1",
    "TABLE_SEATS": "the seat of padding",
    "TABLE_COLUMNS": "column 0",
    "TABLE_BLOCKS": "block 0",
}
STALE = (
    "The buffer is memory that is given out again: behind the step it still holds the step before, "
    "whose slots would be written and whose seats would draw once more. Write every row to its end."
)
WHOSE = (
    "A row of padding runs like any other. It must belong to the seat of nobody, attend to 0 keys and "
    "store at -1; any other number is somebody's."
)
SENDERS = "The step is the sender's: write into `inputs` only."
LENGTH = "A token at position p attends to p + 1 keys: those before it, and its own."
ENTRIES = (
    "How many new table entries there are has nothing to do with how many rows: most steps bring "
    "none, a step at the end of a block brings one for that seat."
)


def fill_and_check(part: Any, size: int, step: StepInput, slots: np.ndarray, nobody: int) -> None:
    inputs = np.full((7, size), JUNK, dtype=np.int32)
    note(
        f"fill(inputs [7, {size}], seats {step.seats.tolist()}, starts {step.starts.tolist()}, "
        f"slots {slots.tolist()}, nobody {nobody}, table seats {step.table_seats.tolist()}, "
        f"columns {step.table_columns.tolist()}, blocks {step.table_blocks.tolist()})"
    )
    before, slots_before = deepcopy(step), slots.copy()
    part.fill(inputs, step, slots, nobody)
    expect_unchanged(step, before, "fill", SENDERS)
    expect_equal(
        slots.tolist(),
        slots_before.tolist(),
        "`slots`, after `fill`",
        why=SENDERS,
    )
    expect_filled(inputs, before, slots_before, nobody)


def step_of(seats: list[int], starts: list[int], entries: list[tuple[int, int, int]]) -> StepInput:
    columns = np.array(entries, dtype=np.int32).reshape(-1, 3).T.copy()
    ones = np.ones(len(seats), dtype=np.int32)
    return StepInput(
        1,
        np.array(seats, np.int32),
        np.array(starts, np.int32),
        ones,
        ones.astype(np.bool_),
        table_seats=columns[0],
        table_columns=columns[1],
        table_blocks=columns[2],
    )


def expect_filled(inputs: np.ndarray, step: StepInput, slots: np.ndarray, nobody: int) -> None:
    size, n, new = inputs.shape[1], len(step.seats), len(step.table_seats)
    rows = {
        "SEATS": (step.seats, nobody, n),
        "KV_LENS": (step.starts + 1, 0, n),
        "POSITIONS": (step.starts, 0, n),
        "SLOTS": (slots, -1, n),
        "TABLE_SEATS": (step.table_seats, nobody, new),
        "TABLE_COLUMNS": (step.table_columns, 0, new),
        "TABLE_BLOCKS": (step.table_blocks, 0, new),
    }
    for row, name in enumerate(NAMES):
        values, padding, count = rows[name]
        got = inputs[row].tolist()
        why = LENGTH if name == "KV_LENS" else ENTRIES if name.startswith("TABLE") else ""
        expect_equal(got[:count], values.tolist(), f"{name}, of the step", why=why)
        if got[count:] != [padding] * (size - count):
            stale = JUNK in got[count:]
            expect(
                False,
                f"{name} behind the step is {got[count:]}, and padding has {PADDING[name]} ({padding})",
                why=STALE if stale else WHOSE,
            )


@task("17.2")
def test_a_step(part: Any) -> None:
    """A step's seats, lengths, positions and slots stand in front, its table entries in their rows."""
    step, slots = step_of([4, 0, 7], [9, 2, 16], [(7, 4, 33)]), np.array([37, 14, 132], np.int32)
    fill_and_check(part, 4, step, slots, 12)


@task("17.2")
def test_padding(part: Any) -> None:
    """Behind the step every row is padding, whatever the buffer held before."""
    step, slots = step_of([3], [5], []), np.array([21], np.int32)
    fill_and_check(part, 8, step, slots, 12)
    start_script()
    step, slots = step_of([1, 2], [0, 1], [(1, 0, 5)]), np.array([20, 9], np.int32)
    fill_and_check(part, 2, step, slots, 6)


@task("17.2")
def test_more_entries_than_rows_of_the_step(part: Any) -> None:
    """A step of one row may bring as many table entries as its size holds."""
    step = step_of([2], [8], [(2, 0, 6), (2, 1, 7), (2, 2, 1)])
    slots = np.array([4], np.int32)
    fill_and_check(part, 4, step, slots, 9)


@task("17.2")
def test_any_step(part: Any) -> None:
    """Any step of any size, with any entries."""
    any_step(part)


@examples(30)
@given(data=st.data())
def any_step(part: Any, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    n = data.draw(st.integers(1, size))
    nobody = data.draw(st.integers(8, 20))
    seats = data.draw(st.permutations(range(8)))[:n]
    starts = data.draw(st.lists(st.integers(0, 90), min_size=n, max_size=n))
    entries = data.draw(st.lists(st.tuples(*[st.integers(0, 7)] * 3), max_size=size))
    step, slots = step_of(seats, starts, entries), np.array([s + 3 for s in starts], np.int32)
    fill_and_check(part, size, step, slots, nobody)
