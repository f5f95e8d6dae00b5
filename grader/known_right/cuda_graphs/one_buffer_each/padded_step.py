"""A step that gathers and scatters by indexing."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import Size, StepMachine

from .inputs import Inputs, num_uploaded, parts_of


class PaddedStep:
    """Steps of a size."""

    def __init__(self, size: Size, machine: StepMachine, memory: Tensor) -> None:
        self.size = size
        self.inputs = memory[: num_uploaded(size)]
        self._machine = machine
        self._small = parts_of(self.inputs, size)

    def forward(self) -> Tensor:
        machine, small = self._machine, self._small
        parts = parts_of(self.inputs.long(), self.size)
        decodes, tokens, chunks = self.size
        machine.tables[parts.table_seats, parts.table_columns] = small.table_blocks
        batch = AttentionBatch(
            query_lens=[1] * decodes + [tokens] * (chunks > 0) + [0] * max(0, chunks - 1),
            kv_lens=[machine.max_model_len] * self.size.sequences,
            query_start_loc=small.begins,
            seq_lens=small.kv_lens,
            block_tables=machine.tables[parts.seats],
            slot_mapping=parts.slots,
            positions=parts.positions,
            num_decodes=decodes if chunks else None,
        )
        return machine.hidden(self._token_ids(parts), batch)

    def _token_ids(self, parts: Inputs) -> Tensor:
        if not self.size.chunks:
            return self._machine.last_tokens[parts.seats]
        is_drawn = parts.token_ids < 0
        seats = torch.where(is_drawn, -1 - parts.token_ids, 0)
        return torch.where(is_drawn, self._machine.last_tokens[seats], parts.token_ids)

    def draw(self, hidden: Tensor) -> Tensor:
        machine, seats = self._machine, self._small.seats.long()
        drawn = machine.sample(machine.logits(hidden), seats)
        machine.count_draws(seats)
        machine.last_tokens[seats] = torch.where(drawn < 0, 0, drawn)
        return drawn
