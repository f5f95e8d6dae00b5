"""A buffer that is made idle first, and then holds a step."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from yaie.core.contracts.graphs import Size, StepMachine
from yaie.core.step import Ints, StepInput

ALIGNED = 4
"""int32s in 16 bytes. Each part begins at a multiple: kernels are compiled for such addresses."""


class Inputs(NamedTuple):
    """What is uploaded for a step, as parts of one array of int32, on the host or on the device.

    positions, slots: [rows], of each token. token_ids: [rows], empty in a size without chunks.
    seats, kv_lens: [sequences], of each decode, and behind them of each chunk; kv_lens counts all tokens
        up to the last one of this step.
    begins: [sequences + 1], the row at which each sequence begins, and behind them the row at which the
        last one ends.
    table_seats, table_columns, table_blocks: [rows], the tables' new entries.
    """

    token_ids: Any
    positions: Any
    slots: Any
    seats: Any
    kv_lens: Any
    begins: Any
    table_seats: Any
    table_columns: Any
    table_blocks: Any


def parts_of(memory: Any, size: Size) -> Inputs:
    """`memory`, an array or a tensor [num_uploaded(size) or more], as its parts."""
    return Inputs(*(memory[part] for part in _slices(size)))


def num_uploaded(size: Size) -> int:
    """int32s that are uploaded for a step of a size."""
    return -(-_slices(size)[-1].stop // ALIGNED) * ALIGNED


@cache
def _slices(size: Size) -> tuple[slice, ...]:
    rows, seqs = size.rows, size.sequences
    counts = (rows if size.chunks else 0, rows, rows, seqs, seqs, seqs + 1, rows, rows, rows)
    slices, begin = [], 0
    for count in counts:
        slices.append(slice(begin, begin + count))
        begin += -(-count // ALIGNED) * ALIGNED
    return tuple(slices)


def place(part: np.ndarray, values: np.ndarray, count: int, zone: int, padding: int) -> None:
    """Padding everywhere, and the values over it."""
    part[:] = padding
    part[:count] = values[:count]
    part[zone : zone + len(values) - count] = values[count:]


def fill(parts: Inputs, size: Size, step: StepInput, machine: StepMachine) -> None:
    """Padding everywhere, and the step over it, token by token."""
    for part, padded in zip(parts, parts_of(idle(size, machine.nobody), size), strict=True):
        part[:] = padded
    slots, token_ids = machine.slots(step), machine.token_ids(step) if size.chunks else None
    row, token = 0, 0
    for number, seat in enumerate(step.seats.tolist()):
        count, start = int(step.num_tokens[number]), int(step.starts[number])
        place_of = number
        if count > 1:
            row = max(row, size.decodes)
            place_of += size.decodes - step.num_decodes
            parts.begins[place_of + 1 :] = row + count
        parts.seats[place_of], parts.kv_lens[place_of] = seat, start + count
        for at in range(count):
            parts.positions[row], parts.slots[row] = start + at, slots[token]
            if token_ids is not None:
                parts.token_ids[row] = token_ids[token]
            row, token = row + 1, token + 1
    entries = (step.table_seats, step.table_columns, step.table_blocks)
    for part, values in zip(parts[-3:], entries, strict=True):
        part[: len(values)] = values


def idle(size: Size, nobody: int) -> Ints:
    """[num_uploaded(size)] int32: a step of padding alone."""
    memory = np.zeros(num_uploaded(size), dtype=np.int32)
    parts = parts_of(memory, size)
    parts.slots[:], parts.seats[:], parts.table_seats[:] = -1, nobody, nobody
    parts.begins[:] = np.minimum(np.arange(size.sequences + 1), size.decodes)
    return memory
