"""As compressed-tensors stores weights: the output first.

pack-quantized, along the inputs, codes and zeros without a sign:
name.weight_packed       [out, in * bits / 32] int32
name.weight_scale        [out, groups]
name.weight_zero_point   [out * bits / 32, groups] int32   along the outputs; not if 0.0 is in the middle
name.weight_g_idx        [in] int32                        the group of each input, with actorder: group
name.weight_shape        [2]                               out and in, which are known

int-quantized, a byte for each weight:
name.weight              [out, in] int8
name.weight_scale        [out, 1]
name.weight_zero_point   [out, 1] int8
"""

from typing import Any

import torch

from yaie.core.quantized import Int8Weight
from yaie.models.layout import Destination
from yaie.models.schemes.words import KINDS, Int4Scheme, WordScheme, bytes_of

EIGHTS = 0x88888888 - 2**32
"""A word of zeros: 0.0 has code 8."""


class CompressedWords(WordScheme):
    """Four and eight bits differ in what becomes of the words."""

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        words = torch.int32
        self._packed = torch.empty(outputs, inputs // self._codes, dtype=words, device=device)
        self._scales = torch.empty(outputs, groups, dtype=torch.float16, device=device)
        self._zeros = torch.full(
            (outputs // self._codes, groups), EIGHTS, device=device, dtype=words
        )

    def destinations(self, *names: str) -> dict[str, Destination]:
        zeros = {}
        if self._how.zeros:
            zeros = self._parts(self._zeros, 0, names, "weight_zero_point")
        return {
            **self._parts(self._packed, 0, names, "weight_packed", self._codes),
            **self._parts(self._scales, 0, names, "weight_scale"),
            **zeros,
            **self._biases(names),
        }


class CompressedInt4(Int4Scheme, CompressedWords):
    """Four bits: turned around when all of it is there."""

    name = "compressed_int4"

    def destinations(self, *names: str) -> dict[str, Destination]:
        groups = self._group_parts(names, "weight_g_idx", self._scales.device)
        return {**super().destinations(*names), **groups}

    def _complete(self) -> None:
        qweight = self._by_group(self._packed.t().contiguous())
        scales, qzeros = self._scales.t().contiguous(), self._zeros.t().contiguous()
        self._complete_with(qweight, scales, qzeros)
        del self._packed, self._scales, self._zeros


class ByteScheme(WordScheme):
    """Eight bits a weight, and a scale for each output."""

    _weight: Any

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._biased(self._products.int8(x, self._weight))


class CompressedInt8(ByteScheme, CompressedWords):
    """Eight bits in words."""

    name = "compressed_int8"

    def _complete(self) -> None:
        codes = (bytes_of(self._packed).short() - 128).to(torch.int8)
        zeros = None
        if self._how.zeros:
            zeros = bytes_of(self._zeros.t()).flatten().int() - 128
        weight = Int8Weight(codes, self._scales.flatten(), zeros)
        self._weight = self._products.arranged_int8(weight, self._dtype)
        del self._packed, self._scales, self._zeros


class PlainInt8(ByteScheme):
    """Eight bits as they are."""

    name = "plain_int8"

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        codes = torch.empty(outputs, inputs, dtype=torch.int8, device=device)
        scales = torch.empty(outputs, 1, dtype=torch.float16, device=device)
        self._whole = {"weight": codes, "weight_scale": scales}
        if self._how.zeros:
            zeros = torch.empty(outputs, 1, dtype=torch.int32, device=device)
            self._whole["weight_zero_point"] = zeros

    def destinations(self, *names: str) -> dict[str, Destination]:
        places = self._biases(names)
        for suffix, whole in self._whole.items():
            places |= self._parts(whole, 0, names, suffix, int(suffix == "weight"))
        return places

    def _complete(self) -> None:
        zeros = self._whole.get("weight_zero_point")
        weight = Int8Weight(
            self._whole["weight"],
            self._whole["weight_scale"].flatten(),
            None if zeros is None else zeros.flatten(),
        )
        self._weight = self._products.arranged_int8(weight, self._dtype)
        del self._whole


KINDS |= {
    ("pack-quantized", 4): CompressedInt4,
    ("pack-quantized", 8): CompressedInt8,
    ("int-quantized", 8): PlainInt8,
}
