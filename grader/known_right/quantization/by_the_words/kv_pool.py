"""K and V of a layer lie in one tensor of codes and one of scales."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec

Pairs = Sequence[tuple[int, int]]


class Int8KVPool:
    def __init__(
        self, layers: Sequence[KVLayerSpec], num_blocks: int, block_size: int, dtype: torch.dtype,
        device: torch.device, num_host_blocks: int = 0,
    ) -> None:  # fmt: skip
        self.num_blocks, self.block_size, self._dtype = num_blocks, block_size, dtype

        def make(count: int, where: torch.device) -> list[tuple[Tensor, Tensor]]:
            shapes = [(2, count, block_size, one.num_kv_heads, one.head_dim) for one in layers]
            return [
                (
                    torch.zeros(shape, dtype=torch.int8, device=where),
                    torch.zeros(shape[:-1], dtype=torch.bfloat16, device=where),
                )
                for shape in shapes
            ]

        self._device, self._host = (
            make(num_blocks, device),
            make(num_host_blocks, torch.device("cpu")),
        )

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._device[layer][0]
        return keys, values

    def scales(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._device[layer][1]
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        blocks = block_tables[rows, positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        codes, scales = self._device[layer]
        both = torch.stack([k, v]).float()
        steps = (both.abs().max(dim=-1).values / 127).to(torch.bfloat16)
        steps[steps == 0] = 1
        blocks, rows = slot_mapping // self.block_size, slot_mapping % self.block_size
        rounded = torch.round(both / steps.float()[..., None])
        codes[:, blocks, rows] = rounded.clamp(-127, 127).to(torch.int8)
        scales[:, blocks, rows] = steps

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        codes, scales = (stored[:, block_tables.long()] for stored in self._device[layer])
        wide = codes.float() * scales.float()[..., None]
        keys, values = wide.flatten(2, 3).to(self._dtype)
        return keys, values

    def copy_blocks(self, pairs: Pairs) -> None:
        self._move(self._device, self._device, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        self._move(self._device, self._host, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        self._move(self._host, self._device, pairs)

    def _move(
        self, source: list[tuple[Tensor, Tensor]], target: list[tuple[Tensor, Tensor]], pairs: Pairs
    ) -> None:
        if pairs:
            here, there = (list(side) for side in zip(*pairs, strict=True))
            for old_layer, new_layer in zip(source, target, strict=True):
                for old, new in zip(old_layer, new_layer, strict=True):
                    new[:, there] = old[:, here].to(new.device)
