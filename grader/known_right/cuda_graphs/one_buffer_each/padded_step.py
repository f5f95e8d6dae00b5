"""A decode step that gathers and scatters by indexing."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import StepMachine

from .inputs import FIELDS, KV_LENS, SEATS, TABLE_BLOCKS


class PaddedStep:
    """Steps of `size` rows."""

    def __init__(self, size: int, machine: StepMachine, memory: Tensor) -> None:
        self.size = size
        self.inputs = memory[: FIELDS * size].view(FIELDS, size)
        self._machine = machine
        self._starts = torch.arange(size + 1, dtype=torch.int32, device=memory.device)

    def forward(self) -> Tensor:
        machine = self._machine
        seats, _, positions, slots, table_seats, columns, _ = self.inputs.long().unbind()
        machine.tables[table_seats, columns] = self.inputs[TABLE_BLOCKS]
        batch = AttentionBatch(
            query_lens=[1] * self.size,
            kv_lens=[machine.max_model_len] * self.size,
            query_start_loc=self._starts,
            seq_lens=self.inputs[KV_LENS],
            block_tables=machine.tables[seats],
            slot_mapping=slots,
            positions=positions,
        )
        return machine.logits(machine.last_tokens[seats], batch)

    def draw(self, logits: Tensor) -> Tensor:
        machine, seats = self._machine, self.inputs[SEATS].long()
        drawn = machine.sample(logits, seats)
        machine.count_draws(seats)
        machine.last_tokens[seats] = torch.where(drawn < 0, 0, drawn)
        return drawn
