# Lab 17, your part: task 17.3. The rest is given.
"""A decode step of a fixed number of rows on memory that stays where it is, as a CUDA graph records it.

A step of n requests takes the rows of the next larger size. The rows after them are padding: they
belong to a seat that no request has, attend to no key, store nothing and sample for no request. A step's
own numbers come in one upload; the rest is at the seats already. The host works out what it can (the
slot of each token), since every kernel takes the device two microseconds, however little it does. Which
kernels run, and on which grids, depends on the size alone, so the same launches serve every step of it.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import StepMachine

from .inputs import FIELDS, KV_LENS, SEATS, TABLE_BLOCKS


class PaddedStep:
    """Steps of `size` rows. `inputs`: where their uploads go, [7, size] int32 on the device."""

    # ANCHOR: given
    def __init__(self, size: int, machine: StepMachine, memory: Tensor) -> None:
        """memory: [7 * size or more] int32, which steps of other sizes may share."""
        self.size = size
        self.inputs = memory[: FIELDS * size].view(FIELDS, size)
        self._machine = machine
        self._starts = torch.arange(size + 1, dtype=torch.int32, device=memory.device)

    def _batch(self, seats: Tensor, positions: Tensor, slots: Tensor) -> AttentionBatch:
        """What attention reads, from the tables as they are on the device now. The lengths on the
        host are bounds that hold for every step."""
        machine = self._machine
        return AttentionBatch(
            query_lens=[1] * self.size,
            kv_lens=[machine.max_model_len] * self.size,
            query_start_loc=self._starts,
            seq_lens=self.inputs[KV_LENS],
            block_tables=machine.tables.index_select(0, seats),
            slot_mapping=slots,
            positions=positions,
        )

    # ANCHOR_END: given

    # ANCHOR: step
    def forward(self) -> Tensor:
        """Enter new blocks into the tables and compute a token for each row: logits [size, vocab].

        The token is the one that was sampled last for the row's seat; the host need not know it.
        """
        machine, inputs = self._machine, self.inputs
        seats, _, positions, slots, table_seats, columns, _ = inputs.long()
        # TODO 17.3: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter A step in one launch"
        )

    def draw(self, logits: Tensor) -> Tensor:
        """Sample a token for each row: [size] int64, -1 for a row that is not finite. It becomes the
        last token of its seat, with 0 in place of -1, and is counted."""
        machine, seats = self._machine, self.inputs[SEATS].long()
        # TODO 17.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter A step in one launch"
        )

    # ANCHOR_END: step
