"""A buffer that is made idle first, and then holds a step."""

import numpy as np

from yaie.core.step import Ints, StepInput

SEATS, KV_LENS, POSITIONS, SLOTS, TABLE_SEATS, TABLE_COLUMNS, TABLE_BLOCKS = range(7)
FIELDS = 7


def fill(inputs: np.ndarray, step: StepInput, slots: Ints, nobody: int) -> None:
    """Padding everywhere, and the step over it."""
    inputs[:] = idle(inputs.shape[1], nobody)
    inputs[:4, : len(step.seats)] = step.seats, step.starts + 1, step.starts, slots
    entries = step.table_seats, step.table_columns, step.table_blocks
    inputs[4:, : len(step.table_seats)] = entries


def idle(size: int, nobody: int) -> np.ndarray:
    """[7, size] int32: a step of padding alone."""
    inputs = np.zeros((FIELDS, size), dtype=np.int32)
    inputs[[SEATS, TABLE_SEATS]] = nobody
    inputs[SLOTS] = -1
    return inputs
