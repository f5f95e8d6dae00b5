"""A step of a fixed size on memory that stays where it is, as a CUDA graph records it.

A step of n requests takes the rows of the next larger size. The rows after them are padding: they
belong to a seat that no request has, attend to no key, store nothing and sample for no request. A step's
own numbers come in one upload; the rest is at the seats already. The host works out what it can (the
slot of each token), since every kernel takes the device two microseconds, however little it does. Which
kernels run, and on which grids, depends on the size alone, so the same launches serve every step of it.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import Size, StepMachine

from .inputs import Inputs, num_uploaded, parts_of


class PaddedStep:
    """Steps of a size. `inputs`: where their uploads go, [num_uploaded(size)] int32 on the device."""

    # ANCHOR: given
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

    # ANCHOR_END: given

    # ANCHOR: step
    def forward(self) -> Tensor:
        """The model's hidden states [rows, hidden] of all rows, of what `inputs` holds when it runs.

        The step's new blocks are in the tables that attention reads, and stay there. Without chunks a
        row's token is the last one of its seat. With chunks it is the one that was sent, and where that
        is negative, `~seat`, the last token of that seat. The host reads no value.
        Cost: beside the machine's own at most 8 operations on the device, with chunks 12.
        """
        # BEGIN SOLUTION 17.3
        machine, parts = self._machine, parts_of(self.inputs, self.size)
        there = parts_of(self.inputs.long(), self.size)
        machine.tables.index_put_((there.table_seats, there.table_columns), parts.table_blocks)
        return machine.hidden(self._token_ids(there), self._batch(parts, there))
        # END SOLUTION

    # BEGIN SOLUTION 17.3
    def _token_ids(self, there: Inputs) -> Tensor:
        """The tokens [rows] int64 of all rows."""
        last_tokens = self._machine.last_tokens
        if not self.size.chunks:
            return last_tokens.index_select(0, there.seats)
        sent = there.token_ids
        drawn = last_tokens.index_select(0, (~sent).clamp(min=0))
        return torch.where(sent < 0, drawn, sent)

    # END SOLUTION

    def draw(self, hidden: Tensor) -> Tensor:
        """In a size without chunks: sample a token for each row, [decodes] int64, -1 for a row that is
        not finite. It becomes the last token of its seat, with 0 in place of -1, and is counted.

        hidden: what `forward` returned.
        Cost: beside the machine's own at most 5 operations on the device.
        """
        # BEGIN SOLUTION 17.3
        machine, seats = self._machine, parts_of(self.inputs, self.size).seats.long()
        logits = machine.logits(hidden)
        drawn = machine.sample(logits, seats)
        machine.last_tokens.index_copy_(0, seats, drawn.clamp(min=0))
        machine.count_draws(seats)
        return drawn
        # END SOLUTION

    # ANCHOR_END: step
