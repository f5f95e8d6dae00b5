"""The machine's methods and the parts' views are looked up once, when the step is made."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import Size, StepMachine

from .inputs import num_uploaded, parts_of


class PaddedStep:
    __slots__ = (
        "_count",
        "_draws",
        "_head",
        "_lens",
        "_model",
        "_parts",
        "_state",
        "inputs",
        "size",
    )

    def __init__(self, size: Size, machine: StepMachine, memory: Tensor) -> None:
        self.size = size
        self.inputs = memory.narrow(0, 0, num_uploaded(size))
        self._parts = parts_of(self.inputs, size)
        self._state = machine.tables, machine.last_tokens
        self._model, self._head = machine.hidden, machine.logits
        self._draws, self._count = machine.sample, machine.count_draws
        decodes, tokens, chunks = size
        spans = [tokens, *[0] * (chunks - 1)] if chunks else []
        self._lens = [*[1] * decodes, *spans], [machine.max_model_len] * size.sequences

    def forward(self) -> Tensor:
        tables, last_tokens = self._state
        wide = parts_of(self.inputs.long(), self.size)
        tables.index_put_((wide.table_seats, wide.table_columns), self._parts.table_blocks)
        if self.size.chunks:
            sent = wide.token_ids
            tokens = last_tokens[torch.bitwise_not(sent).clamp_min(0)].where(sent < 0, sent)
        else:
            tokens = last_tokens[wide.seats]
        queries, keys = self._lens
        batch = AttentionBatch(
            query_lens=list(queries),
            kv_lens=list(keys),
            query_start_loc=self._parts.begins,
            seq_lens=self._parts.kv_lens,
            block_tables=tables[wide.seats],
            slot_mapping=wide.slots,
            positions=wide.positions,
            num_decodes=self.size.decodes if self.size.chunks else None,
        )
        return self._model(tokens, batch)

    def draw(self, hidden: Tensor) -> Tensor:
        seats = self._parts.seats.long()
        drawn = self._draws(self._head(hidden), seats)
        self._state[1].index_put_((seats,), drawn.clamp_min(0))
        self._count(seats)
        return drawn
