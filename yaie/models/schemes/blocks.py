"""Weights that stay in the blocks of a GGUF: a few bits each, multiplied as they are stored.

The tensors of a stacked product need not be of one type: llama.cpp stores values and the way down in
more bits than the rest (Q6_K beside Q4_K). What the backend has no kernel for is unpacked as it is
loaded; beside such a tensor the others are multiplied by themselves, into their columns of the result.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.gemm import BlockGemm, BlockWeight, PlainWeight
from yaie.models.layout import Destination, Layout
from yaie.models.packing import PackedFormat
from yaie.models.schemes.base import Scheme


@dataclass(frozen=True, slots=True)
class BlockPacking:
    """How the layers' weights are stored, and what multiplies them; see `words.Packing`."""

    products: BlockGemm
    format: PackedFormat = field(default=PackedFormat("gguf", 0))

    def scheme(self, layout: Layout, dtype: torch.dtype, device: torch.device) -> "BlockScheme":
        """Storage for one product."""
        return BlockScheme(layout, dtype, device, products=self.products)


class BlockScheme(Scheme):
    """See `Scheme`."""

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
        products: BlockGemm,
    ) -> None:
        self.layout = layout
        self._products = products
        self._bias = torch.empty(layout.out_features, dtype=dtype, device=device)
        if not layout.bias:
            self._bias = self._bias[:0]
        self._unfilled = len(layout.sizes)
        self._whole: Any = None
        self._parts = [
            BlockPlace(
                torch.empty(0, dtype=dtype),
                filled=self._part_filled,
                rows=rows,
                columns=layout.in_features,
                gemm=products,
            )
            for rows in layout.sizes
        ]

    def destinations(self, *names: str) -> dict[str, Destination]:
        places: dict[str, Destination] = {
            f"{name}.weight": part for name, part in zip(names, self._parts, strict=True)
        }
        if self.layout.bias:
            shares = self._bias.split(self.layout.sizes)
            places |= {
                f"{name}.bias": Destination(share)
                for name, share in zip(names, shares, strict=True)
            }
        return places

    def _part_filled(self) -> None:
        """After the last one: one weight of those that stay in blocks."""
        self._unfilled -= 1
        weights = [part.blocks for part in self._parts if part.blocks is not None]
        if not self._unfilled and len(weights) == len(self._parts):
            self._whole = self._products.stacked(weights)

    @property
    def plain(self) -> PlainWeight | None:
        return None if self._whole is None else PlainWeight(self._whole, self._added)

    @property
    def _added(self) -> Tensor | None:
        return self._bias if self.layout.bias else None

    def in_float32(self, x: Tensor) -> Tensor:
        return self(x).float()

    def __call__(self, x: Tensor) -> Tensor:
        out = x.new_empty(len(x), self.layout.out_features)
        if self._whole is not None:
            self._products.product(x, self._whole, out, self._added)
            return out
        for part, own in zip(self._parts, out.split(self.layout.sizes, 1), strict=True):
            if part.blocks is None:
                own.copy_(F.linear(x, part.target))
            else:
                self._products.product(x, part.blocks, own)
        return out.add_(self._bias) if self.layout.bias else out


@dataclass(slots=True)
class BlockPlace(Destination):
    """Of one tensor [rows, columns]. When it comes blocks is set, or target to its numbers."""

    rows: int = 0
    columns: int = 0
    gemm: Any = None
    blocks: BlockWeight | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    @property
    def weight_bytes(self) -> int:
        return self.target.nbytes if self.blocks is None else self.blocks.nbytes

    def fill(self, tensor: Any) -> None:
        """Take a tensor over, as blocks if it has some of a kind that is multiplied.

        Raises ValueError on another shape.
        """
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"has shape {list(tensor.shape)} instead of {list(self.shape)}")
        packed = tensor.blocks(self.gemm.kinds) if hasattr(tensor, "blocks") else None
        if packed is None:
            self.target = tensor[(slice(None), slice(None))].to(self.target.dtype)
        else:
            kind, rows = packed
            self.blocks = self.gemm.arranged(rows, kind, self.columns)
        if self.filled is not None:
            self.filled()
