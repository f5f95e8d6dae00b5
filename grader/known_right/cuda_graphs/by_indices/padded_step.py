"""Tokens by `take` and a product with the mask; last tokens by `scatter_`; tables by one flat index."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import Size, StepMachine

from .inputs import Inputs, num_uploaded, parts_of


class PaddedStep:
    """Steps of a size. `inputs`: where their uploads go, [num_uploaded(size)] int32 on the device."""

    def __init__(self, size: Size, machine: StepMachine, memory: Tensor) -> None:
        """memory: [num_uploaded(size) or more] int32, which steps of other sizes may share."""
        self.size = size
        self.inputs = memory[: num_uploaded(size)]
        self._machine = machine

    def _batch(self, parts: Inputs, there: Inputs) -> AttentionBatch:
        """What attention reads, from the tables as they are on the device now. The lengths on the host
        are bounds that hold for every step. there: `parts` as int64, which indices must be."""
        machine, (decodes, tokens, chunks) = self._machine, self.size
        return AttentionBatch(
            query_lens=[1] * decodes + ([tokens] + [0] * (chunks - 1) if chunks else []),
            kv_lens=[machine.max_model_len] * (decodes + chunks),
            query_start_loc=parts.begins,
            seq_lens=parts.kv_lens,
            block_tables=machine.tables.index_select(0, there.seats),
            slot_mapping=there.slots,
            positions=there.positions,
            num_decodes=decodes if chunks else None,
        )

    def forward(self) -> Tensor:
        machine, parts = self._machine, parts_of(self.inputs, self.size)
        there = parts_of(self.inputs.to(torch.int64), self.size)
        at = there.table_seats * machine.tables.shape[1] + there.table_columns
        machine.tables.view(-1).scatter_(0, at, parts.table_blocks)
        seats = there.seats
        if self.size.chunks:
            is_sent = there.token_ids >= 0
            seats = torch.where(is_sent, machine.nobody, -1 - there.token_ids)
        tokens = machine.last_tokens.take(seats)
        if self.size.chunks:
            tokens = torch.where(is_sent, there.token_ids, tokens)
        return machine.hidden(tokens, self._batch(parts, there))

    def draw(self, hidden: Tensor) -> Tensor:
        machine = self._machine
        seats = parts_of(self.inputs, self.size).seats.to(torch.int64)
        tokens = machine.sample(machine.logits(hidden), seats)
        machine.count_draws(seats)
        machine.last_tokens.scatter_(0, seats, tokens.relu())
        return tokens
