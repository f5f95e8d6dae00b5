# Lab 17, your part: task 17.2. The rest is given.
"""What is uploaded for a decode step: one array, whatever the step holds."""

import numpy as np

from yaie.core.step import Ints, StepInput

# ANCHOR: fields
SEATS, KV_LENS, POSITIONS, SLOTS, TABLE_SEATS, TABLE_COLUMNS, TABLE_BLOCKS = range(7)
"""Rows of what is uploaded for a step, [7, size] int32. The last three are the tables' new entries."""
FIELDS = 7


# ANCHOR_END: fields


# ANCHOR: fill
def fill(inputs: np.ndarray, step: StepInput, slots: Ints, nobody: int) -> None:
    """Write a step of single tokens into `inputs` [7, size] int32, and padding after it.

    slots: where their keys and values go. nobody: the seat of padding. The step brings at most `size`
    new table entries, and is read only. What `inputs` held before is undefined.

    A row of padding belongs to `nobody`, attends to 0 keys, has position 0 and stores at slot -1,
    which stores nothing. An entry of padding goes to the table of `nobody`.
    """
    # TODO 17.2: your code here (the reference: 14 lines).
    raise NotImplementedError(
        "cuda_graphs task 17.2: not implemented yet; see chapter A step in one launch"
    )


# ANCHOR_END: fill


# ANCHOR: idle
def idle(size: int, nobody: int) -> np.ndarray:
    """[7, size] int32: a step of padding alone."""
    inputs = np.zeros((FIELDS, size), dtype=np.int32)
    inputs[[SEATS, TABLE_SEATS]] = nobody
    inputs[SLOTS] = -1
    return inputs


# ANCHOR_END: idle
