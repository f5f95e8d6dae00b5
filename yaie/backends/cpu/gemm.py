"""Products with packed weights by the library; see `yaie.core.gemm.PackedGemm`."""

from ctypes import byref
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.cpu.library import Library, PackedWeight
from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Int4Weight, Int8Weight

FEW_ROWS = {torch.float32: 256, torch.bfloat16: 32}
"""With more, a product of the unpacked weight, which oneDNN multiplies, is faster: it has instructions
for pairs of bfloat16."""
AT_ONCE = 1 << 21
"""Numbers of a weight that are there in floating point at a time: a cache holds most of them."""
STEP = 8
"""Inputs that the library widens in one go."""


@dataclass(frozen=True, slots=True)
class TiledWeight:
    """An `Int8Weight` or `Int4Weight` in the order in which the library reads it: outputs in tiles as
    wide as its vectors, and a tile's inputs one behind the other. Outputs beyond the last are 0.

    codes: [tiles, in, lanes] int8; of four bits [tiles, in / 8, lanes] int32 with eight inputs of an
    output in each, as in `Int4Weight`. scales: [tiles, groups, lanes] float16. zeros: as many int8, in
    four bits less 8.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor
    in_features: int
    out_features: int
    group_size: int
    bits: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.zeros.nbytes


class CpuGemm:
    """Of weights that it has arranged, in float32 and bfloat16, summed in float32. Lab 19 multiplies the
    rest."""

    def __init__(self, library: Library, plain: PackedGemm) -> None:
        self._library = library
        self._plain = plain
        # By dtype: new memory for each product would be mapped, and zeroed, each time.
        self._wide: dict[torch.dtype, Tensor] = {}

    def arranged(self, weight: Int4Weight, dtype: torch.dtype) -> Int4Weight | TiledWeight:
        """See `PackedGemm.arranged`."""
        if dtype not in FEW_ROWS or weight.scales.dtype != torch.float16:
            return weight
        zeros = (weight.qzeros[..., None] >> 4 * torch.arange(8, dtype=torch.int32)) & 15
        return TiledWeight(
            self._tiles(weight.qweight),
            self._tiles(weight.scales),
            self._tiles((zeros - 8).flatten(1).to(torch.int8)),
            weight.in_features,
            weight.out_features,
            weight.group_size,
            bits=4,
        )

    def arranged_int8(self, weight: Int8Weight, dtype: torch.dtype) -> Int8Weight | TiledWeight:
        """See `PackedGemm.arranged_int8`."""
        outputs, inputs = weight.codes.shape
        if dtype not in FEW_ROWS or weight.scales.dtype != torch.float16 or inputs % STEP:
            return weight
        zeros = weight.zeros
        if zeros is None:
            zeros = torch.zeros(outputs, dtype=torch.int8, device=weight.codes.device)
        return TiledWeight(
            self._tiles(weight.codes.t()),
            self._tiles(weight.scales[None]),
            self._tiles(zeros[None].to(torch.int8)),
            inputs,
            outputs,
            inputs,
            bits=8,
        )

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

    def _product(self, x: Tensor, weight: TiledWeight) -> Tensor:
        if len(x) > FEW_ROWS[x.dtype]:
            return self._product_of_many(x, weight)
        x, outputs = x.contiguous(), weight.out_features
        out = x.new_empty(len(x), outputs)
        self._library.packed_product(
            byref(_packed(weight, 0, outputs)), x.data_ptr(), out.data_ptr(), len(x),
            x.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        return out

    def _product_of_many(self, x: Tensor, weight: TiledWeight) -> Tensor:
        lanes, inputs, outputs = self._library.lanes, weight.in_features, weight.out_features
        step = max(1, AT_ONCE // inputs // lanes)
        parts = []
        for tile in range(0, len(weight.codes), step):
            wide = self._room(inputs, min(outputs - tile * lanes, step * lanes), x.dtype)
            self._library.unpack(
                byref(_packed(weight, tile, wide.shape[1])), wide.data_ptr(),
                wide.dtype == torch.bfloat16, torch.get_num_threads(),
            )  # fmt: skip
            parts.append(_multiply(x, wide.t()))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _room(self, inputs: int, outputs: int, dtype: torch.dtype) -> Tensor:
        """[inputs, outputs] to be written. One product at a time needs it, as a worker computes them."""
        needed, kept = inputs * outputs, self._wide.get(dtype)
        if kept is None or kept.numel() < needed:
            kept = self._wide[dtype] = torch.empty(needed, dtype=dtype)
        return kept[:needed].view(inputs, outputs)


def _takes(x: Tensor, weight: Any) -> bool:
    return isinstance(weight, TiledWeight) and x.dtype in FEW_ROWS


def _packed(weight: TiledWeight, tile: int, outputs: int) -> PackedWeight:
    """So many outputs from a tile on."""
    parts = (part[tile].data_ptr() for part in (weight.codes, weight.scales, weight.zeros))
    return PackedWeight(*parts, weight.in_features, outputs, weight.group_size, weight.bits)


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T, in oneDNN where it is: MKL is slower on some processors."""
    if not torch.backends.mkldnn.is_available():
        return F.linear(x, weight)
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return y
