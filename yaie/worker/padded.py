"""A decode step of a fixed number of rows on memory that stays where it is, as a CUDA graph records it.

A step of n requests takes the rows of the next larger size. The rows behind them are padding: they
belong to a seat that nobody has, attend to no key, store nothing and draw for nobody. What a step brings
comes in one upload; all else is at the seats already. What the host knows it works out (the slot of each
token), since every kernel takes the device two microseconds, however little it does. Which kernels run,
on which grids, depends on the size alone, so that the same launches serve every step of it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.batch import AttentionBatch
from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.step import Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.sampling import SamplingState
from yaie.worker.seats import Seats

SEATS, KV_LENS, POSITIONS, SLOTS, TABLE_SEATS, TABLE_COLUMNS, TABLE_BLOCKS = range(7)
"""Rows of what is uploaded for a step, [7, size] int32. The last three are the tables' new entries."""
FIELDS = 7
SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


def padded_sizes(largest: int) -> list[int]:
    """Rows that steps are padded to, ascending: 1, 2, 4, multiples of 8, and `largest`."""
    sizes = {*SMALL_SIZES, *range(SIZE_STEP, largest, SIZE_STEP), largest}
    return sorted(size for size in sizes if size <= largest)


@dataclass(frozen=True, slots=True)
class PaddedMachine:
    """What padded steps run on, see `Worker`. max_model_len: a bound on the keys of every sequence."""

    adapter: ModelAdapter
    attention: BatchAttention
    pool: KVPool
    sampler: Sampler
    seats: Seats
    sampling: SamplingState
    max_model_len: int
    device: torch.device


class PaddedStep:
    """Steps of `size` rows. `inputs`: where their uploads go, [7, size] int32 on the device."""

    def __init__(self, size: int, machine: PaddedMachine, memory: Tensor) -> None:
        """memory: [7 * size or more] int32, which steps of other sizes may share."""
        self.size = size
        self.inputs = memory[: FIELDS * size].view(FIELDS, size)
        self._machine = machine
        self._starts = torch.arange(size + 1, dtype=torch.int32, device=machine.device)

    def forward(self) -> Tensor:
        """Enter new blocks into the tables and compute a token for each row: logits [size, vocab]."""
        machine, inputs = self._machine, self.inputs
        seats, _, positions, slots, table_seats, columns, _ = inputs.long()
        tables = machine.seats.tables
        tables.index_put_((table_seats, columns), inputs[TABLE_BLOCKS])
        batch = AttentionBatch(
            query_lens=[1] * self.size,
            kv_lens=[machine.max_model_len] * self.size,
            query_start_loc=self._starts,
            seq_lens=inputs[KV_LENS],
            block_tables=tables.index_select(0, seats),
            slot_mapping=slots,
            positions=positions,
        )
        attend = attend_through(machine.attention, machine.attention.plan(batch))
        token_ids = machine.seats.last_tokens.index_select(0, seats)
        return machine.adapter.logits(machine.adapter.forward(token_ids, positions, attend))

    def draw(self, logits: Tensor) -> Tensor:
        """Draw by each seat's temperature and seed alone: [size] int64. Moves the seats on."""
        machine, seats = self._machine, self.inputs[SEATS].long()
        drawn = machine.sampler.sample(logits, machine.sampling.plain_batch(seats))
        machine.seats.last_tokens.index_copy_(0, seats, drawn.clamp(min=0))
        machine.sampling.count_draws(seats)
        return drawn


def fill(inputs: np.ndarray, step: StepInput, slots: Ints, nobody: int) -> None:
    """Write a step of single tokens into `inputs` [7, size] int32, and padding behind it.

    slots: where their keys and values go. nobody: the seat of padding. The step brings at most `size`
    new table entries.
    """
    n, new = len(step.seats), len(step.table_seats)
    for row, values, padding in (
        (SEATS, step.seats, nobody),
        (KV_LENS, step.starts + 1, 0),
        (POSITIONS, step.starts, 0),
        (SLOTS, slots, -1),
    ):
        inputs[row, :n], inputs[row, n:] = values, padding
    for row, values, padding in (
        (TABLE_SEATS, step.table_seats, nobody),
        (TABLE_COLUMNS, step.table_columns, 0),
        (TABLE_BLOCKS, step.table_blocks, 0),
    ):
        inputs[row, :new], inputs[row, new:] = values, padding


def idle(size: int, nobody: int) -> np.ndarray:
    """[7, size] int32: a step of padding alone."""
    inputs = np.zeros((FIELDS, size), dtype=np.int32)
    inputs[[SEATS, TABLE_SEATS]] = nobody
    inputs[SLOTS] = -1
    return inputs
