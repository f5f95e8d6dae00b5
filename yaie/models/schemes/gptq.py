"""As GPTQ's tools pack weights.

name.qweight   [in * bits / 32, out] int32   the codes, along the inputs
name.qzeros    [groups, out * bits / 32]     the zeros, along the outputs, most often less 1
name.scales    [groups, out] float16
name.g_idx     [in] int32                    the group of each input; read if it is not i // group_size
"""

import torch
from torch import Tensor

from yaie.core.quantized import Int8Weight
from yaie.models.layout import Destination
from yaie.models.schemes.words import KINDS, WORD, Int4Scheme, WordScheme, bytes_of, int32


class GptqWords(WordScheme):
    """Four and eight bits differ in what becomes of the words."""

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        size = outputs // self._codes
        self._qweight = torch.empty(
            inputs // self._codes, outputs, dtype=torch.int32, device=device
        )
        self._qzeros = torch.empty(groups, size, dtype=torch.int32, device=device)
        self._scales = torch.empty(groups, outputs, dtype=torch.float16, device=device)

    def destinations(self, *names: str) -> dict[str, Destination]:
        return {
            **self._parts(self._qweight, 1, names, "qweight", self._codes),
            **self._parts(self._qzeros, 1, names, "qzeros"),
            **self._parts(self._scales, 1, names, "scales"),
            **self._biases(names),
        }

    def _zeros(self) -> Tensor:
        return _plus_one(self._qzeros, self._how.bits) if self._how.zero_offset else self._qzeros


class GptqInt4(Int4Scheme, GptqWords):
    """Four bits: as they are."""

    name = "gptq_int4"

    def destinations(self, *names: str) -> dict[str, Destination]:
        groups = self._group_parts(names, "g_idx", self._scales.device)
        return {**super().destinations(*names), **groups}

    def _complete(self) -> None:
        qweight = self._by_group(self._qweight)
        self._complete_with(qweight, self._scales, self._zeros())
        del self._qweight, self._qzeros, self._scales  # kept in that order, or in another


class GptqInt8(GptqWords):
    """Eight bits: words become bytes, an output's side by side."""

    name = "gptq_int8"

    def _complete(self) -> None:
        inputs, outputs = self.layout.in_features, self.layout.out_features
        codes = bytes_of(self._qweight).view(inputs // 4, outputs, 4).transpose(0, 1)
        signed = (codes.reshape(outputs, inputs).short() - 128).to(torch.int8)
        zeros = bytes_of(self._zeros()).flatten().int() - 128
        weight = Int8Weight(
            signed, self._scales[0].contiguous(), zeros if bool(zeros.any()) else None
        )
        self._weight = self._products.arranged_int8(weight, self._dtype)
        del self._qweight, self._qzeros, self._scales

    def __call__(self, x: Tensor) -> Tensor:
        return self._biased(self._products.int8(x, self._weight))


KINDS |= {("gptq", 4): GptqInt4, ("gptq", 8): GptqInt8}


def _plus_one(words: Tensor, bits: int) -> Tensor:
    """1 more in each of the numbers of so many bits that fill int32 words; from the largest back to 0.

    The highest bit of each is kept out of the sum, so that none carries into its neighbour.
    """
    ones = sum(1 << shift for shift in range(0, WORD, bits))
    highest = ones << (bits - 1)
    low = (words.long() & (highest ^ 0xFFFFFFFF)) + ones
    total = low ^ (words.long() & highest)
    return int32(total)
