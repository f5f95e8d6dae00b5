"""The KV pool of the cuda backend: lab 3's layout, moved by the kernels of lab 13."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.core.contracts.kernels import MemoryKernels
from yaie.system.lazy_zeros import zeros

Pairs = Sequence[tuple[int, int]]


class KernelPool:
    """See `yaie.core.contracts.KVPool`. Host blocks are pinned: a kernel reads and writes them."""

    def __init__(
        self,
        kernels: MemoryKernels,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int = 0,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._kernels = kernels
        self._on = device

        def blocks(layer: KVLayerSpec, count: int, where: torch.device, pinned: bool) -> Tensor:
            shape = (count, block_size, layer.num_kv_heads, layer.head_dim)
            return zeros(shape, dtype, where, pinned=pinned)

        host, pinned = torch.device("cpu"), device.type == "cuda"
        both = range(2)  # keys and values
        self._device = [[blocks(layer, num_blocks, device, False) for _ in both]
                        for layer in layers]  # fmt: skip
        self._host = [[blocks(layer, num_host_blocks, host, pinned) for _ in both]
                      for layer in layers]  # fmt: skip

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._device[layer]
        return keys, values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        blocks = block_tables[rows, positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        self._kernels.store_kv(k, v, *self.blocks(layer), slot_mapping)

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        tables = block_tables.int()
        keys, values = (self._kernels.gather(blocks, tables) for blocks in self.blocks(layer))
        return keys, values

    def copy_blocks(self, pairs: Pairs) -> None:
        if pairs:
            tensors = [blocks for layer in self._device for blocks in layer]
            self._kernels.copy_blocks(tensors, self._tensor(pairs))

    def swap_out(self, pairs: Pairs) -> None:
        self._swap(self._device, self._host, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        self._swap(self._host, self._device, pairs)

    def _swap(self, source: list[list[Tensor]], target: list[list[Tensor]], pairs: Pairs) -> None:
        if not pairs:
            return
        moves = self._tensor(pairs)
        for here, there in zip(source, target, strict=True):
            for old, new in zip(here, there, strict=True):
                self._kernels.swap_blocks(old, new, moves)

    def _tensor(self, pairs: Pairs) -> Tensor:
        return torch.tensor(pairs, dtype=torch.int64).to(self._on)
