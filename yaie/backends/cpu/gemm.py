"""Products with packed weights by the library; see `yaie.core.gemm.PackedGemm`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.cpu.blocks import DTYPES, CpuBlockGemm, InterleavedBlocks
from yaie.backends.cpu.library import Library
from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Int4Weight, Int8Weight

PART = 32
"""Inputs that the library multiplies in one go: a group has as many, or several times as many."""
INT8 = 256
INT4 = {32: 257, 64: 258, 128: 260}
"""The kinds of `kinds.h`, of four bits by the inputs that have a scale and a zero of their own."""
EVENS_FIRST = [0, 2, 4, 6, 1, 3, 5, 7]
"""Of eight inputs in two words of bytes."""


class CpuGemm:
    """Of weights that it has arranged, in float32 and bfloat16, summed in float32. Lab 19 multiplies the
    rest."""

    def __init__(self, library: Library, plain: PackedGemm) -> None:
        self._library = library
        self._plain = plain
        self._blocks = CpuBlockGemm(library)

    def arranged(self, weight: Int4Weight, dtype: torch.dtype) -> Int4Weight | InterleavedBlocks:
        """See `PackedGemm.arranged`."""
        group = next((size for size in sorted(INT4)[::-1] if weight.group_size % size == 0), 0)
        if not group or dtype not in DTYPES or weight.scales.dtype != torch.float16:
            return weight
        repeats = weight.group_size // group
        scales = weight.scales.repeat_interleave(repeats, 0)
        zeros = (weight.qzeros[..., None] >> 4 * torch.arange(8, dtype=torch.int32)) & 15
        zeros = zeros.flatten(1).to(torch.uint8).repeat_interleave(repeats, 0)
        codes = self._tiles(weight.qweight).unflatten(1, (-1, group // 8)).flatten(2)
        parts = (self._tiles(scales), self._tiles(zeros), codes)
        tiles = torch.cat([part.view(torch.uint8) for part in parts], -1)
        return InterleavedBlocks.of(tiles, weight.out_features, weight.in_features, INT4[group])

    def arranged_int8(
        self, weight: Int8Weight, dtype: torch.dtype
    ) -> Int8Weight | InterleavedBlocks:
        """See `PackedGemm.arranged_int8`."""
        outputs, inputs = weight.codes.shape
        if inputs % PART or dtype not in DTYPES or weight.scales.dtype != torch.float16:
            return weight
        zeros = weight.zeros
        if zeros is None:
            zeros = torch.zeros(outputs, dtype=torch.int8, device=weight.codes.device)
        eights = weight.codes.view(torch.uint8).bitwise_xor(128).unflatten(1, (-1, 8))
        words = eights[..., EVENS_FIRST].contiguous().view(torch.int32).flatten(1)
        parts = (
            self._tiles(p) for p in (weight.scales[None], zeros[None].to(torch.int8), words.t())
        )
        tiles = torch.cat([part.flatten(1).view(torch.uint8) for part in parts], -1)
        return InterleavedBlocks.of(tiles, outputs, inputs, INT8)

    def _tiles(self, rows: Tensor) -> Tensor:
        """[n, out] as [tiles, n, lanes]."""
        lanes = self._library.lanes
        padded = F.pad(rows, (0, -rows.shape[1] % lanes))
        return padded.unflatten(1, (-1, lanes)).transpose(0, 1).contiguous()

    def int8(self, x: Tensor, weight: Any) -> Tensor:
        """See `PackedGemm`."""
        return self._product(x, weight) if _takes(x, weight) else self._plain.int8(x, weight)

    def int4(self, x: Tensor, weight: Any) -> Tensor:
        """See `PackedGemm`."""
        return self._product(x, weight) if _takes(x, weight) else self._plain.int4(x, weight)

    def _product(self, x: Tensor, weight: InterleavedBlocks) -> Tensor:
        out = x.new_empty(len(x), sum(weight.sizes))
        self._blocks.product(x, weight, out)
        return out


def _takes(x: Tensor, weight: Any) -> bool:
    return isinstance(weight, InterleavedBlocks) and x.dtype in DTYPES
