"""Values are written to rows by their numbers, over padding that `fill` puts everywhere."""

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
    """Write the first `count` values at the front of `part`, the others from `zone` on, and `padding`
    everywhere else. What `part` held before is undefined."""
    rows = np.arange(len(values))
    rows[count:] += zone - count
    part.fill(padding)
    part[rows] = values


def fill(parts: Inputs, size: Size, step: StepInput, machine: StepMachine) -> None:
    """Write a step into arrays that are uploaded, and padding around it: decodes at the front, chunks
    from row `size.decodes` on. The step brings at most `size.rows` new table entries, and is read only.

    A row of padding has token 0, position 0 and slot -1, which stores nothing. A decode of padding
    belongs to `machine.nobody`, has 0 keys, and begins at its own row. A chunk of padding belongs to
    `machine.nobody`, has 0 keys and no tokens, and begins where the last chunk ends. An entry of padding
    goes to the table of `machine.nobody`, column 0, block 0.
    """
    decodes, zone, nobody = step.num_decodes, size.decodes, machine.nobody
    ends = step.starts + step.num_tokens
    written = {
        "positions": (step.positions, 0),
        "slots": (machine.slots(step), -1),
        "seats": (step.seats, nobody),
        "kv_lens": (ends, 0),
    }
    if size.chunks:
        written["token_ids"] = machine.token_ids(step), 0
    for name, (values, padding) in written.items():
        place(getattr(parts, name), values, decodes, zone, padding)
    for name, padding in (("table_seats", nobody), ("table_columns", 0), ("table_blocks", 0)):
        values = getattr(step, name)
        place(getattr(parts, name), values, len(values), len(values), padding)
    lengths = np.zeros(size.sequences, dtype=np.int64)
    lengths[:zone] = 1
    lengths[zone : zone + len(step.seats) - decodes] = step.num_tokens[decodes:]
    parts.begins[:] = np.concatenate(([0], np.cumsum(lengths)))


def idle(size: Size, nobody: int) -> Ints:
    """[num_uploaded(size)] int32: a step of padding alone."""
    memory = np.zeros(num_uploaded(size), dtype=np.int32)
    parts = parts_of(memory, size)
    parts.slots[:], parts.seats[:], parts.table_seats[:] = -1, nobody, nobody
    parts.begins[:] = np.minimum(np.arange(size.sequences + 1), size.decodes)
    return memory
