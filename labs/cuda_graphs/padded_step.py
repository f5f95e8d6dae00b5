# Lab 17, your part: task 17.3. The rest is given.
"""A decode step of a fixed number of rows on memory that stays where it is, as a CUDA graph records it.

A step of n requests takes the rows of the next larger size. The rows behind them are padding: they
belong to a seat that no request has, attend to no key, store nothing and draw for nobody. What a step
brings comes in one upload; all else is at the seats already. What the host knows it works out (the slot
of each token), since every kernel takes the device two microseconds, however little it does. Which
kernels run, on which grids, depends on the size alone, so the same launches serve every step of it.
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
        """What attention reads, from the tables as they are on the device now. The lengths that the
        host is told are bounds that hold for every step."""
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

        The token is the one that the row's seat drew last. No value of it is known on the host.
        """
        machine, inputs = self._machine, self.inputs
        seats, _, positions, slots, table_seats, columns, _ = inputs.long()
        # TODO 17.3: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter A step in one launch"
        )

    def draw(self, logits: Tensor) -> Tensor:
        """Draw a token for each row: [size] int64, -1 for a row that is not finite. Each seat's last
        token is the drawn one then, 0 instead of -1, and its draw is counted."""
        machine, seats = self._machine, self.inputs[SEATS].long()
        # TODO 17.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.3: not implemented yet; see chapter A step in one launch"
        )

    # ANCHOR_END: step
