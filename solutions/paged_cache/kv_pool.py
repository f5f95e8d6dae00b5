"""The memory behind the block numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.system.lazy_zeros import zeros


# ANCHOR: pool
class KVPool:
    """See `yaie.core.contracts.KVPool`.

    For each layer one tensor for K and one for V, [num_blocks, block_size, kv_heads, head_dim]: a block
    is contiguous, so gathering, copying and swapping it is one memcpy. `zeros` costs nothing on a CPU:
    the system maps pages when they are first written.
    """

    def __init__(
        self,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int = 0,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size

        def make(count: int, where: torch.device) -> list[tuple[Tensor, Tensor]]:
            pinned = where.type == "cpu" and device.type == "cuda"

            def blocks(layer: KVLayerSpec) -> Tensor:
                shape = (count, block_size, layer.num_kv_heads, layer.head_dim)
                return zeros(shape, dtype, where, pinned=pinned)

            return [(blocks(layer), blocks(layer)) for layer in layers]

        self._device = make(num_blocks, device)
        self._host = make(num_host_blocks, torch.device("cpu"))

    # ANCHOR_END: pool

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer as they lie in memory."""
        return self._device[layer]

    # ANCHOR: slot_mapping
    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The slot of each token, [T] int64, on the tables' device and without a loop over tokens.

        block_tables: [n, m] int32. rows, positions: [T] int64, the row of each token's table and the
        token's position in its sequence.
        """
        # BEGIN SOLUTION 3.4
        blocks = block_tables[rows, positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size
        # END SOLUTION

    # ANCHOR_END: slot_mapping

    # ANCHOR: write
    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T] (int64)."""
        # BEGIN SOLUTION 3.4
        for pool, new in zip(self._device[layer], (k, v), strict=True):
            pool.flatten(0, 1).index_copy_(0, slot_mapping, new)
        # END SOLUTION

    # ANCHOR_END: write

    # ANCHOR: gather
    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m] as [n, m * block_size, kv_heads, head_dim] (copies)."""
        # BEGIN SOLUTION 3.4
        n, m = block_tables.shape
        keys, values = (
            pool.index_select(0, block_tables.flatten()).view(
                n, m * self.block_size, *pool.shape[2:]
            )
            for pool in self._device[layer]
        )
        return keys, values
        # END SOLUTION

    # ANCHOR_END: gather

    # ANCHOR: move_blocks
    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        # BEGIN SOLUTION 3.4
        self._move(self._device, self._device, pairs)
        # END SOLUTION

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        # BEGIN SOLUTION 3.4
        self._move(self._device, self._host, pairs)
        # END SOLUTION

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        # BEGIN SOLUTION 3.4
        self._move(self._host, self._device, pairs)
        # END SOLUTION

    def _move(
        self,
        source: list[tuple[Tensor, Tensor]],
        target: list[tuple[Tensor, Tensor]],
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        """Copy the blocks of `pairs` in every layer, for K and V; all reads before all writes."""
        # BEGIN SOLUTION 3.4
        if not pairs:
            return
        here, there = torch.tensor(pairs).unbind(1)
        for source_layer, target_layer in zip(source, target, strict=True):
            for old, new in zip(source_layer, target_layer, strict=True):
                moved = old.index_select(0, here.to(old.device))
                new.index_copy_(0, there.to(new.device), moved.to(new.device))
        # END SOLUTION

    # ANCHOR_END: move_blocks
