"""Another right pool: one stretch of memory for all layers, and every tensor a view that is cut from it.

Blocks are moved one by one, but all are read first, into one buffer of a step. Gathering is an embedding
lookup, in which a block is a row; writing goes token by token's slot with `index_put_`.
"""

from collections.abc import Iterable, Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import KVLayerSpec


class _Arena:
    """K and V of all layers, [count, size, heads, dim] each, in this order."""

    def __init__(
        self,
        shapes: Iterable[tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shapes = list(shapes)
        memory = torch.zeros(2 * sum(map(prod, shapes)), dtype=dtype, device=device)
        self.layers: list[tuple[Tensor, Tensor]] = []
        for shape in shapes:
            halves = memory[: 2 * prod(shape)].view(2, *shape)
            self.layers.append((halves[0], halves[1]))
            memory = memory[2 * prod(shape) :]

    def tensors(self) -> list[Tensor]:
        return [tensor for layer in self.layers for tensor in layer]


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
        def arena(count: int, where: torch.device) -> _Arena:
            shapes = ((count, block_size, one.num_kv_heads, one.head_dim) for one in layers)
            return _Arena(shapes, dtype, where)

        self.num_blocks, self.block_size = num_blocks, block_size
        self._here, self._there = (
            arena(num_blocks, device),
            arena(num_host_blocks, torch.device("cpu")),
        )

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer."""
        return self._here.layers[layer]

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """slot = position + (block - number of the block in its sequence) * block_size."""
        number = torch.div(positions, self.block_size, rounding_mode="trunc")
        block = block_tables.index_select(0, rows).gather(1, number[:, None])[:, 0].long()
        return positions + (block - number) * self.block_size

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v in the slots."""
        for stored, new in zip(self._here.layers[layer], (k, v), strict=True):
            stored.view(-1, *stored.shape[2:]).index_put_((slot_mapping,), new)

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m], in tables of any integer type."""
        found = []
        for stored in self._here.layers[layer]:
            rows = F.embedding(block_tables.long(), stored.flatten(1))
            found.append(rows.view(block_tables.shape[0], -1, *stored.shape[2:]))
        return found[0], found[1]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Within the device."""
        _move(self._here, self._here, pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """To the host."""
        _move(self._here, self._there, pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """From the host."""
        _move(self._there, self._here, pairs)


def _move(source: _Arena, target: _Arena, pairs: Sequence[tuple[int, int]]) -> None:
    for old, new in zip(source.tensors(), target.tensors(), strict=True):
        read = [old[src].clone() for src, _ in pairs]
        for content, (_, dst) in zip(read, pairs, strict=True):
            new[dst].copy_(content)
