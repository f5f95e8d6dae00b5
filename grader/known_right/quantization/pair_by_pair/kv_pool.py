"""Tokens are written to flat views, blocks are read by their table, and moved pair by pair."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.system.lazy_zeros import zeros

Pairs = Sequence[tuple[int, int]]
Stored = list[Tensor]
"""Of one layer: the codes of K, those of V, the scales of K, those of V."""


def round_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Keys or values [..., head_dim] as (codes int8, scales [...] bfloat16)."""
    wide = x.float()
    largest = torch.maximum(wide.amax(-1), -wide.amin(-1))
    scales = largest.div(127).to(torch.bfloat16)
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = wide.div(scales.unsqueeze(-1).float()).round_().clamp_(-127, 127)
    return codes.char(), scales


class Int8KVPool:
    """See `yaie.core.contracts.quantizing.Int8KVPool`.

    A byte for each number and two for each head's scale, where bfloat16 takes two for each: of heads of
    128 numbers 51%, of heads of 32 53%.
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
        """dtype: of what `gather` gives."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._dtype = dtype

        def make(count: int, where: torch.device) -> list[Stored]:
            pinned = where.type == "cpu" and device.type == "cuda"

            def of(layer: KVLayerSpec) -> Stored:
                heads = (count, block_size, layer.num_kv_heads)
                codes = [zeros((*heads, layer.head_dim), torch.int8, where, pinned=pinned)
                         for _ in range(2)]  # fmt: skip
                return codes + [zeros(heads, torch.bfloat16, where, pinned=pinned)
                                for _ in range(2)]  # fmt: skip

            return [of(layer) for layer in layers]

        self._device = make(num_blocks, device)
        self._host = make(num_host_blocks, torch.device("cpu"))

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """The codes of a layer's K and V as they lie in memory."""
        keys, values, _, _ = self._device[layer]
        return keys, values

    def scales(self, layer: int) -> tuple[Tensor, Tensor]:
        """The scales of a layer's K and V as they lie in memory."""
        _, _, of_keys, of_values = self._device[layer]
        return of_keys, of_values

    def slot_mapping(self, block_tables: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The slot of each token, as in lab 3."""
        blocks = block_tables[rows, positions // self.block_size].long()
        return blocks * self.block_size + positions % self.block_size

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T] (int64)."""
        codes, scales = round_heads(torch.stack((k, v)))
        for which in (0, 1):
            self._device[layer][which].view(-1, *k.shape[1:])[slot_mapping] = codes[which]
            self._device[layer][which + 2].view(-1, k.shape[1])[slot_mapping] = scales[which]

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of the blocks [n, m] in the model's dtype: [n, m * block_size, heads, head_dim]."""
        table = block_tables.long()
        both = []
        for which in (0, 1):
            stored, scales = self._device[layer][which], self._device[layer][which + 2]
            wide = (
                stored[table].to(torch.float32).mul_(scales[table].to(torch.float32).unsqueeze(-1))
            )
            both.append(wide.flatten(1, 2).to(self._dtype))
        return both[0], both[1]

    def copy_blocks(self, pairs: Pairs) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        self._move(self._device, self._device, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        self._move(self._device, self._host, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        self._move(self._host, self._device, pairs)

    def _move(self, source: list[Stored], target: list[Stored], pairs: Pairs) -> None:
        """Copy the blocks of `pairs` in every layer; all reads before all writes."""
        if not pairs:
            return
        for old_layer, new_layer in zip(source, target, strict=True):
            for old, new in zip(old_layer, new_layer, strict=True):
                moved = [old[here].clone() for here, _ in pairs]
                for (_, there), block in zip(pairs, moved, strict=True):
                    new[there].copy_(block)
