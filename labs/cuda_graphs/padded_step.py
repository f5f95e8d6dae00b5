# Lab 17, your part (edition 3): task 17.3. The rest is given.
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
        # TODO 17.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter CUDA graphs"
        )

    # TODO 17.3, if you like: helpers of your own (the reference: 8 lines).

    def draw(self, hidden: Tensor) -> Tensor:
        """In a size without chunks: sample a token for each row, [decodes] int64, -1 for a row that is
        not finite. It becomes the last token of its seat, with 0 in place of -1, and is counted.

        hidden: what `forward` returned.
        Cost: beside the machine's own at most 5 operations on the device.
        """
        # TODO 17.3: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter CUDA graphs"
        )

    # ANCHOR_END: step
