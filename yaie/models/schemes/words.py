"""Weights that a checkpoint has packed, for lab 19's products: what the formats share.

Stacked products lie side by side along their outputs, or one above the other where a format has the
output first.
"""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ModelError
from yaie.core.gemm import PackedGemm, PlainWeight
from yaie.core.quantized import LoadedInt4Weight
from yaie.models.layout import Cut, Destination, Layout
from yaie.models.packing import WHOLE, PackedFormat
from yaie.models.schemes.base import Scheme
from yaie.models.schemes.cutting import in_units

WORD = 32
EIGHTS = -0x77777778
"""The int32 whose eight numbers of four bits are 8."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How the layers' weights are stored, and what multiplies them."""

    format: PackedFormat
    products: PackedGemm

    def scheme(self, layout: Layout, dtype: torch.dtype, device: torch.device) -> "WordScheme":
        """Storage for one product."""
        kind = KINDS[self.format.method, self.format.bits]
        return kind(layout, dtype, device, packing=self)


class WordScheme(Scheme):
    """See `Scheme`. Subclasses say where words go, and make of them what a product takes."""

    _weight: Any

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
        self.layout = layout
        self._dtype = dtype
        self._how = how
        self._check_sizes()
        self._products = packing.products
        self._bias = torch.empty(outputs, dtype=dtype, device=device) if layout.bias else None
        self._unfilled = 0
        self._make(inputs, outputs, inputs // self._size, device)

    def in_float32(self, x: Tensor) -> Tensor:
        return self(x).float()

    @property
    def plain(self) -> PlainWeight | None:
        if not self._products.fuses(self._weight):
            return None
        return PlainWeight(self._weight, self._bias)

    def _check_sizes(self) -> None:
        inputs, sizes = self.layout.in_features, self.layout.sizes
        if inputs % self._size or any(size % self._codes for size in (inputs, *sizes)):
            raise ModelError(
                f"a product of {inputs} inputs and {sum(sizes)} outputs cannot be packed in "
                f"{self._how.bits} bits and groups of {self._size}: its sizes and config.json do not "
                "fit together"
            )

    @abstractmethod
    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        """Memory to fill."""

    @abstractmethod
    def _complete(self) -> None:
        """Everything has been filled."""

    def _parts(
        self, whole: Tensor, dim: int, names: Sequence[str], suffix: str, parameters: int = 0
    ) -> dict[str, Destination]:
        """Those of a tensor whose dimension `dim` is the outputs, or words of them; the other is the
        inputs, or words or groups of them."""
        shrunk = self.layout.out_features // whole.shape[dim]
        sizes = [size // shrunk for size in self.layout.sizes]
        self._unfilled += len(sizes)
        columns = self._columns_in(whole.shape[1 - dim])
        parts = zip(names, whole.split(sizes, dim=dim), self._rows, strict=True)
        places = {}
        for name, part, row in parts:
            cuts = in_units(row, shrunk), columns
            places[f"{name}.{suffix}"] = Destination(
                part,
                filled=self._filled,
                parameters=parameters,
                cuts=cuts if dim == 0 else cuts[::-1],
            )
        return places

    @property
    def _rows(self) -> tuple[Cut | None, ...]:
        """Which outputs of each product are held."""
        return self.layout.rows or (None,) * len(self.layout.sizes)

    def _columns_in(self, entries: int) -> Cut | None:
        """Which of the inputs are held, on an axis that has so many entries here."""
        if self._how.group_size == WHOLE and entries == 1:
            return None  # all inputs share it, wherever they are
        return in_units(self.layout.columns, self.layout.in_features // entries)

    def _biases(self, names: Sequence[str]) -> dict[str, Destination]:
        if self._bias is None:
            return {}
        parts = zip(names, self._bias.split(self.layout.sizes), self._rows, strict=True)
        return {f"{name}.bias": Destination(part, cuts=(row,)) for name, part, row in parts}

    def _filled(self) -> None:
        self._unfilled -= 1
        if self._unfilled == 0:
            self._complete()

    def dense(self) -> Tensor:
        """What the codes stand for, [out, in] in the model's dtype: of a scheme made by `DENSE`, when
        all of it is there."""
        return _int8_dense(self._weight).to(self._dtype)

    def _biased(self, y: Tensor) -> Tensor:
        return y if self._bias is None else y + self._bias


def _no_product(x: Tensor, weight: Any) -> Tensor:
    raise AssertionError("a weight that is to be multiplied out is not multiplied by")


DENSE = PackedGemm(_no_product, _no_product)
"""For weights that are multiplied out when they have been read (`WordScheme.dense`)."""


class Int4Scheme(WordScheme):
    """Four bits a weight, in whatever order the checkpoint had them.

    Where inputs were rounded in the order of what they weigh (`desc_act`), those of a group do not stand
    side by side. They are put there once, and each input of the product is picked in that order.
    """

    _order: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._order is not None:
            x = x[:, self._order]
        return self._biased(self._products.int4(x, self._weight))

    def dense(self) -> Tensor:
        weight = self._weight
        codes = numbers(weight.qweight).transpose(1, 2).flatten(0, 1)  # [in, out]
        zeros = numbers(weight.qzeros).flatten(1)
        size = weight.group_size
        spread = [part.repeat_interleave(size, dim=0) for part in (zeros, weight.scales.float())]
        values = ((codes - spread[0]) * spread[1]).to(self._dtype)
        if self._order is not None:
            values = torch.empty_like(values).index_copy_(0, self._order, values)
        return values.t().contiguous()

    @property
    def plain(self) -> PlainWeight | None:
        return super().plain if self._order is None else None

    def _complete_with(self, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> None:
        is_even = bool((qzeros == EIGHTS).all())
        weight = LoadedInt4Weight(qweight, scales, qzeros, self._size, is_even)
        self._weight = self._products.arranged(weight, self._dtype)

    def _group_parts(
        self, names: Sequence[str], suffix: str, device: torch.device
    ) -> dict[str, Destination]:
        """Those of the group of each input, [in] int32, where the checkpoint tells them."""
        if not self._how.ordered:
            return {}
        if self.layout.columns is not None:
            raise ModelError("inputs that were rounded in an order of their own cannot be split")
        count = len(self.layout.sizes)
        self._unfilled += count
        self._groups = torch.empty(count, self.layout.in_features, dtype=torch.int32, device=device)
        return {
            f"{name}.{suffix}": Destination(part, filled=self._filled, parameters=0)
            for name, part in zip(names, self._groups, strict=True)
        }

    def _by_group(self, qweight: Tensor) -> Tensor:
        """Words [in / 8, out] with the inputs of a group side by side. Raises ModelError for products
        with the same input that want it in different orders, and for groups of uneven size."""
        if not self._how.ordered:
            return qweight
        groups = self._groups[0]
        order = groups.argsort(stable=True)
        even = torch.arange(len(groups), device=groups.device) // self._size
        if not (self._groups == groups).all() or not torch.equal(groups[order].long(), even):
            raise ModelError(
                "the order in which inputs were rounded (g_idx) differs between products that share "
                "them, or gives groups of uneven size, which is not supported. Serve the original model."
            )
        del self._groups
        if torch.equal(groups.long(), even):
            return qweight
        self._order = order
        codes = numbers(qweight).transpose(1, 2).flatten(0, 1)[order]
        return words(codes.unflatten(0, (-1, 8)).transpose(1, 2))


def _int8_dense(weight: Any) -> Tensor:
    """The numbers of an Int8Weight, [out, in] float32."""
    codes = weight.codes.float()
    if weight.zeros is not None:
        codes = codes - weight.zeros.float()[:, None]
    dense: Tensor = codes * weight.scales.float()[:, None]
    return dense


KINDS: dict[tuple[str, int], type[WordScheme]] = {}
"""By the method of `PackedFormat` and its bits; the modules of the formats fill it."""


def numbers(words: Tensor) -> Tensor:
    """The eight numbers of four bits in each int32: [..., 8], the lowest first."""
    shifts = 4 * torch.arange(8, dtype=torch.int32, device=words.device)
    return (words[..., None] >> shifts) & 15


def words(numbers: Tensor) -> Tensor:
    """[..., 8] numbers of four bits as int32 [...]."""
    shifts = 4 * torch.arange(8, device=numbers.device)
    return int32((numbers.long() << shifts).sum(dim=-1))


def bytes_of(words: Tensor) -> Tensor:
    """[..., n] int32 as [..., 4 * n] uint8, the lowest first."""
    assert sys.byteorder == "little"
    return words.contiguous().view(torch.uint8)


def int32(bits: Tensor) -> Tensor:
    """Whole numbers below 2**32 as the int32 of the same bits."""
    return torch.where(bits >= 2**31, bits - 2**32, bits).int()
