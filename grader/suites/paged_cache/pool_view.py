"""Pools that are small enough to be read, and the plain tensors that say what they must hold."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect_close, note, quietly, start_script, watch
from yaie.core.batch import KVLayerSpec

# Two layers alike, so that one taken for the other is no error but a wrong answer, and one that is not.
LAYERS = [KVLayerSpec(2, 3), KVLayerSpec(2, 3), KVLayerSpec(1, 4)]
BLOCKS, SIZE, HOST = 5, 2, 3
SLOTS = BLOCKS * SIZE

Content = list[list[Tensor]]
"""For each layer K and V, [blocks, SIZE, kv_heads, head_dim]."""


def rows(layer: int, serials: Sequence[int]) -> list[Tensor]:
    """K and V of tokens that can be told apart: the K of token 7 is 700, 701, ..., its V -700, ..."""
    spec = LAYERS[layer]
    inner = torch.arange(spec.num_kv_heads * spec.head_dim, dtype=torch.float32)
    first = torch.tensor([100.0 * serial for serial in serials])
    k = (first[:, None] + inner).view(len(serials), spec.num_kv_heads, spec.head_dim)
    return [k, -k]


class PoolDesk:
    """A watched pool beside the tensors that it must equal; what is done to one is done to both."""

    def __init__(self, part: ModuleType) -> None:
        start_script()
        note(
            f"pool = KVPool({len(LAYERS)} layers, num_blocks={BLOCKS}, block_size={SIZE}, "
            f"num_host_blocks={HOST})"
        )
        pool = part.KVPool(LAYERS, BLOCKS, SIZE, torch.float32, torch.device("cpu"), HOST)
        self.pool = watch(pool, "pool", describe_pool)
        self.device = self._zeros(BLOCKS)
        self.host = self._zeros(HOST)
        self.serial = 0

    def _zeros(self, count: int) -> Content:
        shapes = [(count, SIZE, spec.num_kv_heads, spec.head_dim) for spec in LAYERS]
        return [[torch.zeros(shape), torch.zeros(shape)] for shape in shapes]

    def fill(self) -> None:
        """Something else in every slot of every layer."""
        for layer in range(len(LAYERS)):
            self.write(layer, list(range(SLOTS)))

    def write(self, layer: int, slots: list[int]) -> None:
        """New tokens for these slots of a layer."""
        tokens = rows(layer, range(self.serial + 1, self.serial + 1 + len(slots)))
        self.serial += len(slots)
        self.pool.write(layer, *tokens, torch.tensor(slots, dtype=torch.int64))
        for stored, new in zip(self.device[layer], tokens, strict=True):
            for slot, row in zip(slots, new, strict=True):
                stored[slot // SIZE, slot % SIZE] = row

    def move(self, call: str, pairs: list[tuple[int, int]]) -> None:
        """call: copy_blocks, swap_out or swap_in."""
        getattr(self.pool, call)(pairs)
        source = self.host if call == "swap_in" else self.device
        target = self.host if call == "swap_out" else self.device
        for old, new in zip(source, target, strict=True):
            for kept, changed in zip(old, new, strict=True):
                before = kept.clone()
                for here, there in pairs:
                    changed[there] = before[here]

    def compare(self, why: str = "") -> None:
        """The device pool, block by block."""
        for layer, content in enumerate(self.device):
            stored = quietly(self.pool).blocks(layer)
            for name, got, expected in zip("KV", stored, content, strict=True):
                what = f"{name} of layer {layer} [block, row, head, dim]"
                try:
                    expect_close(got, expected, what, why=why)
                except Mismatch as error:
                    if all(map(torch.equal, stored, reversed(content))):
                        error.why = "K is stored where V belongs, and V where K does."
                    raise

    def compare_host(self, why: str = "") -> None:
        """The host pool, through the device pool, which is overwritten."""
        self.move("swap_in", [(block, block) for block in range(HOST)])
        self.compare(why)


def describe_pool(pool: Any) -> str:
    """The first number of each slot, block by block, as `rows` numbers tokens."""
    lines = []
    for layer in range(len(LAYERS)):
        for name, stored in zip("KV", pool.blocks(layer), strict=True):
            firsts = [[int(row[0, 0]) for row in block] for block in stored]
            lines.append(f"layer {layer} {name}: {firsts}")
    return "\n".join(lines)
