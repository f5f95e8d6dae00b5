"""Another right pool: a block has its keys and then its values, in one tensor for a layer.

[num_blocks, 2, block_size, kv_heads, head_dim]: a move of a block is one copy, K and V together. What
`blocks` gives are views with gaps between their blocks. The host pool is made when something goes there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec

Pairs = Sequence[tuple[int, int]]


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
        self._layers, self._dtype, self._num_host_blocks = tuple(layers), dtype, num_host_blocks
        self._device = self._made(num_blocks, device)
        self._host: list[Tensor] | None = None

    def _made(self, count: int, where: torch.device) -> list[Tensor]:
        return [
            torch.zeros(
                (count, 2, self.block_size, layer.num_kv_heads, layer.head_dim),
                dtype=self._dtype,
                device=where,
            )
            for layer in self._layers
        ]

    @property
    def _on_host(self) -> list[Tensor]:
        if self._host is None:
            self._host = self._made(self._num_host_blocks, torch.device("cpu"))
        return self._host

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer as they lie in memory."""
        keys, values = self._device[layer].unbind(1)
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """From the entry of the flattened tables that a token's position leads to."""
        entry = positions.div(self.block_size, rounding_mode="floor") + rows * block_tables.shape[1]
        block = block_tables.reshape(-1).take(entry).to(torch.int64)
        return torch.add(positions.remainder(self.block_size), block, alpha=self.block_size)

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """K and V of all tokens with one assignment."""
        blocks, offsets = slot_mapping // self.block_size, slot_mapping % self.block_size
        self._device[layer][blocks, :, offsets] = torch.stack((k, v), dim=1)

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m]."""
        gathered = self._device[layer][block_tables.long()]  # [n, m, 2, size, heads, dim]
        keys, values = (part.flatten(1, 2) for part in gathered.unbind(2))
        return keys, values

    def copy_blocks(self, pairs: Pairs) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        self._move(self._device, self._device, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """Copy device blocks to host blocks."""
        if pairs:
            self._move(self._device, self._on_host, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy host blocks to device blocks."""
        if pairs:
            self._move(self._on_host, self._device, pairs)

    @staticmethod
    def _move(source: list[Tensor], target: list[Tensor], pairs: Pairs) -> None:
        here, there = [one for one, _ in pairs], [other for _, other in pairs]
        if here:
            for old, new in zip(source, target, strict=True):
                new[there] = old[here].to(new.device)
