"""Weights that a checkpoint has packed as GPTQ's tools do, for lab 19's products.

    name.qweight   [in * bits / 32, out] int32   the codes, along the inputs
    name.qzeros    [groups, out * bits / 32]     the zeros, along the outputs, most often less 1
    name.scales    [groups, out] float16
    name.g_idx     [in] int32                    the group of each input: i // group_size, so not read

Stacked products lie side by side, since the output is the last dimension of all of them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from yaie.core.errors import ModelError
from yaie.core.products import PackedProducts
from yaie.core.quantized import Int4Weight, Int8Weight
from yaie.models.layout import Destination, Layout
from yaie.models.packing import WHOLE, PackedFormat
from yaie.models.schemes.base import Scheme

WORD = 32


@dataclass(frozen=True, slots=True)
class Packing:
    """How the layers' weights are stored, and what multiplies them."""

    format: PackedFormat
    products: PackedProducts

    def scheme(self, layout: Layout, dtype: torch.dtype, device: torch.device) -> "GptqScheme":
        """Storage for one product."""
        kind = GptqInt4 if self.format.bits == 4 else GptqInt8
        return kind(layout, dtype, device, packing=self)


class GptqScheme(Scheme):
    """See `Scheme`. Subclasses make of the words what their product takes."""

    @classmethod
    def suits(
        cls, out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        return False  # a weight of floating-point numbers is not packed here

    def __init__(
        self,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        shared: Tensor | None = None,
        *,
        packing: Packing,
    ) -> None:
        """Raises ModelError for sizes that words or groups do not divide."""
        how, inputs, outputs = packing.format, layout.in_features, layout.out_features
        self._codes = WORD // how.bits
        self._size = inputs if how.group_size == WHOLE else how.group_size
        if inputs % self._size or any(size % self._codes for size in (inputs, *layout.sizes)):
            raise ModelError(
                f"a product of {inputs} inputs and {outputs} outputs cannot be packed in {how.bits} "
                f"bits and groups of {self._size}: its sizes and config.json do not fit together"
            )
        self._layout = layout
        self._offset = how.zero_offset
        self._products = packing.products
        groups = inputs // self._size
        self._qweight = torch.empty(
            inputs // self._codes, outputs, dtype=torch.int32, device=device
        )
        self._qzeros = torch.empty(groups, outputs // self._codes, dtype=torch.int32, device=device)
        self._scales = torch.empty(groups, outputs, dtype=torch.float16, device=device)
        self._bias = torch.empty(outputs, dtype=dtype, device=device) if layout.bias else None
        self._unfilled = 3 * len(layout.sizes)

    def destinations(self, names: Sequence[str]) -> dict[str, Destination]:
        sizes = self._layout.sizes
        words = [size // self._codes for size in sizes]
        places: dict[str, Destination] = {}
        for suffix, whole, parts, parameters in (
            ("qweight", self._qweight, sizes, self._codes),
            ("qzeros", self._qzeros, words, 0),
            ("scales", self._scales, sizes, 0),
        ):
            for name, part in zip(names, whole.split(list(parts), dim=1), strict=True):
                places[f"{name}.{suffix}"] = Destination(
                    part, filled=self._part_filled, parameters=parameters
                )
        if self._bias is not None:
            for name, part in zip(names, self._bias.split(sizes), strict=True):
                places[f"{name}.bias"] = Destination(part)
        return places

    def _part_filled(self) -> None:
        self._unfilled -= 1
        if self._unfilled == 0:
            if self._offset:
                self._qzeros = _plus_one(self._qzeros, WORD // self._codes)
            self._complete()

    def _complete(self) -> None:
        raise NotImplementedError

    def _biased(self, y: Tensor) -> Tensor:
        return y if self._bias is None else y + self._bias


class GptqInt4(GptqScheme):
    """Four bits: stored as they are."""

    name = "gptq_int4"

    def _complete(self) -> None:
        self._weight = Int4Weight(self._qweight, self._scales, self._qzeros, self._size)

    def __call__(self, x: Tensor) -> Tensor:
        return self._biased(self._products.int4(x, self._weight))


class GptqInt8(GptqScheme):
    """Eight bits: words become bytes, an output's side by side."""

    name = "gptq_int8"

    def _complete(self) -> None:
        inputs, outputs = self._layout.in_features, self._layout.out_features
        codes = _bytes(self._qweight).view(inputs // 4, outputs, 4).transpose(0, 1)
        signed = (codes.reshape(outputs, inputs).short() - 128).to(torch.int8)
        zeros = _bytes(self._qzeros).flatten().int() - 128
        self._weight = Int8Weight(
            signed, self._scales[0].contiguous(), zeros if bool(zeros.any()) else None
        )
        del self._qweight, self._qzeros, self._scales

    def __call__(self, x: Tensor) -> Tensor:
        return self._biased(self._products.int8(x, self._weight))


def _bytes(words: Tensor) -> Tensor:
    """[..., n] int32 as [..., 4 * n] uint8, the lowest first."""
    assert sys.byteorder == "little"
    return words.contiguous().view(torch.uint8)


def _plus_one(words: Tensor, bits: int) -> Tensor:
    """1 more in each of the numbers of so many bits that fill int32 words; from the largest back to 0.

    The highest bit of each is kept out of the sum, so that none carries into its neighbour.
    """
    ones = sum(1 << shift for shift in range(0, WORD, bits))
    highest = ones << (bits - 1)
    low = (words.long() & (highest ^ 0xFFFFFFFF)) + ones
    total = low ^ (words.long() & highest)
    return torch.where(total >= 2**31, total - 2**32, total).int()
