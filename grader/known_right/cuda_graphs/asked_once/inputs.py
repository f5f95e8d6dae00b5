"""Padding is written into the gaps alone, by slices that are worked out for the three zones."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from yaie.core.contracts.graphs import Size, StepMachine
from yaie.core.step import Ints, StepInput

ALIGNED = 4


class Inputs(NamedTuple):
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
    return Inputs(*(memory[part] for part in _slices(size)))


def num_uploaded(size: Size) -> int:
    return -(-_slices(size)[-1].stop // ALIGNED) * ALIGNED


@lru_cache(maxsize=4096)
def _slices(size: Size) -> tuple[slice, ...]:
    rows, seqs = size.rows, size.sequences
    counts = (rows if size.chunks else 0, rows, rows, seqs, seqs, seqs + 1, rows, rows, rows)
    slices, begin = [], 0
    for count in counts:
        slices.append(slice(begin, begin + count))
        begin += -(-count // ALIGNED) * ALIGNED
    return tuple(slices)


def place(part: np.ndarray, values: np.ndarray, count: int, zone: int, padding: int) -> None:
    behind = len(values) - count
    part[count:zone] = padding
    part[zone + behind :] = padding
    np.copyto(part[:count], values[:count])
    np.copyto(part[zone : zone + behind], values[count:])


def fill(parts: Inputs, size: Size, step: StepInput, machine: StepMachine) -> None:
    n, zone = step.num_decodes, size.decodes
    for part, values, padding in (
        (parts.positions, step.positions, 0),
        (parts.slots, machine.slots(step), -1),
        (parts.seats, step.seats, machine.nobody),
        (parts.kv_lens, np.add(step.starts, step.num_tokens), 0),
    ):
        place(part, values, n, zone, padding)
    if size.chunks:
        place(parts.token_ids, machine.token_ids(step), n, zone, 0)
    new = len(step.table_seats)
    parts.table_seats[:new], parts.table_seats[new:] = step.table_seats, machine.nobody
    parts.table_columns[:new], parts.table_columns[new:] = step.table_columns, 0
    parts.table_blocks[:new], parts.table_blocks[new:] = step.table_blocks, 0
    parts.begins[:zone] = np.arange(zone)
    begin = zone
    parts.begins[zone] = begin
    for number, count in enumerate(step.num_tokens[n:].tolist(), zone + 1):
        begin += count
        parts.begins[number] = begin
    parts.begins[zone + 1 + len(step.num_tokens) - n :] = begin


def idle(size: Size, nobody: int) -> Ints:
    memory = np.zeros(num_uploaded(size), dtype=np.int32)
    parts = parts_of(memory, size)
    parts.slots[:], parts.seats[:], parts.table_seats[:] = -1, nobody, nobody
    parts.begins[:] = np.minimum(np.arange(size.sequences + 1), size.decodes)
    return memory
