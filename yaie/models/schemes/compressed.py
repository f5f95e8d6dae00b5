"""As compressed-tensors packs weights (pack-quantized, symmetric): the output first.

name.weight_packed   [out, in / 8] int32   the codes, along the inputs
name.weight_scale    [out, groups]
name.weight_shape    [2]                   out and in, which are known
"""

from collections.abc import Sequence

import torch

from yaie.core.quantized import Int4Weight
from yaie.models.layout import Destination
from yaie.models.schemes.words import KINDS, Int4Scheme

EIGHTS = 0x88888888 - 2**32
"""A word of zeros: 0.0 has code 8."""


class CompressedInt4(Int4Scheme):
    """Turned around when all of it is there."""

    name = "compressed_int4"

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        self._packed = torch.empty(outputs, inputs // 8, dtype=torch.int32, device=device)
        self._scales = torch.empty(outputs, groups, dtype=torch.float16, device=device)

    def destinations(self, names: Sequence[str]) -> dict[str, Destination]:
        return {
            **self._parts(self._packed, 0, names, "weight_packed", self._codes),
            **self._parts(self._scales, 0, names, "weight_scale"),
            **self._biases(names),
        }

    def _complete(self) -> None:
        scales = self._scales.t().contiguous()
        qzeros = torch.full(
            (len(scales), scales.shape[1] // 8), EIGHTS, dtype=torch.int32, device=scales.device
        )
        self._weight = Int4Weight(self._packed.t().contiguous(), scales, qzeros, self._size)
        del self._packed, self._scales


KINDS["compressed-tensors", 4] = CompressedInt4
