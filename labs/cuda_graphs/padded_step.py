# Lab 17, your part (edition 2): task 17.3. The rest is given.
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
        """Enter new blocks into the tables and compute the tokens of all rows: the model's hidden states
        [rows, hidden]."""
        machine, parts = self._machine, parts_of(self.inputs, self.size)
        there = parts_of(self.inputs.long(), self.size)
        # TODO 17.3: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter CUDA graphs"
        )

    def _token_ids(self, there: Inputs) -> Tensor:
        """The tokens [rows] int64 of all rows.

        In a size without chunks each is the one that was sampled last for the row's seat; the host need
        not know it. With chunks they are those that were sent, and in place of `~seat` stands the last
        token of that seat.
        """
        last_tokens = self._machine.last_tokens
        # TODO 17.3: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter CUDA graphs"
        )

    def draw(self, hidden: Tensor) -> Tensor:
        """In a size without chunks: sample a token for each row, [decodes] int64, -1 for a row that is
        not finite. It becomes the last token of its seat, with 0 in place of -1, and is counted.

        hidden: what `forward` returned.
        """
        machine, seats = self._machine, parts_of(self.inputs, self.size).seats.long()
        logits = machine.logits(hidden)
        # TODO 17.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter CUDA graphs"
        )

    # ANCHOR_END: step
