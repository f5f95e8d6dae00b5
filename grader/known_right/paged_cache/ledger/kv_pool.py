"""The memory behind the block numbers, K and V of a layer in one tensor.

Different from the reference: [2, num_blocks, block_size, kv_heads, head_dim] for each layer, written and
read by advanced indexing with block and row, and moved with K and V together. Slots are picked from the
slots of whole tables.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec


class KVPool:
    """See `yaie.core.contracts.KVPool`."""

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
        shapes = [(block_size, layer.num_kv_heads, layer.head_dim) for layer in layers]
        self._device = [
            torch.zeros(2, num_blocks, *shape, dtype=dtype, device=device) for shape in shapes
        ]
        self._host = [torch.zeros(2, num_host_blocks, *shape, dtype=dtype) for shape in shapes]

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer as they lie in memory."""
        keys, values = self._device[layer]
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The slot of each token [T]."""
        row = torch.arange(self.block_size, device=block_tables.device)
        slots = block_tables.long()[..., None] * self.block_size + row
        return slots.flatten(1)[rows, positions]

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T]."""
        block, row = slot_mapping // self.block_size, slot_mapping % self.block_size
        self._device[layer][:, block, row] = torch.stack([k, v])

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m] as [n, m * block_size, kv_heads, head_dim]."""
        keys, values = self._device[layer][:, block_tables.long()].flatten(2, 3)
        return keys, values

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        _move(self._device, self._device, pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        _move(self._device, self._host, pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        _move(self._host, self._device, pairs)


def _move(source: list[Tensor], target: list[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    here, there = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for old, new in zip(source, target, strict=True):
        # Indexing with a list copies, so every block is read before the first is written.
        new[:, there] = old[:, here].to(new.device)
