# Lab 3, your part (edition 2): task 3.4. The rest is given.
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
        # TODO 3.4: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: slot_mapping

    # ANCHOR: write
    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T] (int64)."""
        # TODO 3.4: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: write

    # ANCHOR: gather
    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m] as [n, m * block_size, kv_heads, head_dim] (copies)."""
        # TODO 3.4: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: gather

    # ANCHOR: move_blocks
    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        # TODO 3.4: your code here (the reference: 1 line).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        # TODO 3.4: your code here (the reference: 1 line).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        # TODO 3.4: your code here (the reference: 1 line).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    def _move(
        self,
        source: list[tuple[Tensor, Tensor]],
        target: list[tuple[Tensor, Tensor]],
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        """Copy the blocks of `pairs` in every layer, for K and V; all reads before all writes."""
        # TODO 3.4: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "paged_cache task 3.4: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: move_blocks
