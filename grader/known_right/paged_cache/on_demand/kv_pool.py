"""The memory behind the block numbers, one tensor for K and one for V of each layer, seen as slots.

Different from the reference: what is kept are slots [num_blocks * block_size, kv_heads, head_dim], and
blocks are a view of them; slots are found by `gather` along the tables; a move reads a list of clones
first, and writes one by one; without layers or pairs nothing is treated apart.
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
        self._layers = list(layers)
        self._here = [self._zeros(layer, num_blocks, dtype, device) for layer in layers]
        cpu = torch.device("cpu")
        self._there = [self._zeros(layer, num_host_blocks, dtype, cpu) for layer in layers]

    def _zeros(
        self, layer: KVLayerSpec, count: int, dtype: torch.dtype, device: torch.device
    ) -> list[Tensor]:
        shape = (count * self.block_size, layer.num_kv_heads, layer.head_dim)
        return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)]

    def _blocks(self, slots: Tensor) -> Tensor:
        return slots.unflatten(0, (slots.shape[0] // self.block_size, self.block_size))

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer."""
        keys, values = map(self._blocks, self._here[layer])
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The slot of each token [T]."""
        index = torch.div(positions, self.block_size, rounding_mode="floor")
        blocks = block_tables.index_select(0, rows).gather(1, index[:, None]).squeeze(1)
        return torch.add(
            positions.remainder(self.block_size), blocks.to(torch.int64) * self.block_size
        )

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T]."""
        keys, values = self._here[layer]
        keys[slot_mapping], values[slot_mapping] = k, v

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m] as [n, m * block_size, kv_heads, head_dim]."""
        first = block_tables.long().unsqueeze(-1) * self.block_size
        slots = (first + torch.arange(self.block_size, device=first.device)).flatten(1)
        keys, values = (content[slots] for content in self._here[layer])
        return keys, values

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst in every layer."""
        self._move(self._here, self._here, pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks in every layer."""
        self._move(self._here, self._there, pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks in every layer."""
        self._move(self._there, self._here, pairs)

    def _move(
        self,
        source: list[list[Tensor]],
        target: list[list[Tensor]],
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        for both, changed in zip(source, target, strict=True):
            for slots, into in zip(both, changed, strict=True):
                old, new = self._blocks(slots), self._blocks(into)
                moved = [(there, old[here].clone()) for here, there in pairs]
                for there, content in moved:
                    new[there].copy_(content)
