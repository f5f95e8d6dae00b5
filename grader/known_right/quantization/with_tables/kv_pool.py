"""One tensor of bytes for each layer, half of it K and half V; what is gathered goes by a buffer of the
pool, which is never returned."""

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
        self._codes, self._scales = self._make(layers, num_blocks, device)
        self._host = self._make(layers, num_host_blocks, torch.device("cpu"))
        self._wide = torch.empty(0, device=device)

    def _make(
        self, layers: Sequence[KVLayerSpec], count: int, where: torch.device
    ) -> tuple[list[Tensor], list[Tensor]]:
        codes, scales = [], []
        for layer in layers:
            shape = (count, self.block_size, 2, layer.num_kv_heads, layer.head_dim)
            codes.append(torch.zeros(shape, dtype=torch.int8, device=where))
            scales.append(torch.zeros(shape[:-1], dtype=torch.bfloat16, device=where))
        return codes, scales

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._codes[layer].unbind(2)
        return keys, values

    def scales(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._scales[layer].unbind(2)
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        blocks = block_tables[rows, positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        both = torch.stack([k.float(), v.float()], dim=1)
        scales = both.abs().amax(dim=-1).div(127).bfloat16()
        scales = torch.where(scales == 0, torch.ones_like(scales), scales)
        codes = (both / scales.float().unsqueeze(-1)).round().clamp(-127, 127).to(torch.int8)
        self._codes[layer].flatten(0, 1)[slot_mapping] = codes
        self._scales[layer].flatten(0, 1)[slot_mapping] = scales

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        tables = block_tables.long()
        codes = self._codes[layer][tables].flatten(1, 2)
        scales = self._scales[layer][tables].flatten(1, 2).float().unsqueeze(-1)
        if self._wide.shape != codes.shape:
            self._wide = torch.empty(codes.shape, device=codes.device)
        torch.mul(codes.float(), scales, out=self._wide)
        keys, values = (self._wide[:, :, side].to(self._dtype, copy=True) for side in range(2))
        return keys, values

    def copy_blocks(self, pairs: Pairs) -> None:
        self._move((self._codes, self._scales), (self._codes, self._scales), pairs)

    def swap_out(self, pairs: Pairs) -> None:
        self._move((self._codes, self._scales), self._host, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        self._move(self._host, (self._codes, self._scales), pairs)

    def _move(
        self,
        source: tuple[list[Tensor], list[Tensor]],
        target: tuple[list[Tensor], list[Tensor]],
        pairs: Pairs,
    ) -> None:
        here = [one for one, _ in pairs]
        there = [other for _, other in pairs]
        for olds, news in zip(source, target, strict=True):
            for old, new in zip(olds, news, strict=True):
                if pairs:
                    new[there] = old[here].to(new.device)
