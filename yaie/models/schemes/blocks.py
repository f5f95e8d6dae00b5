"""Weights that stay in the blocks of a GGUF: a few bits each, multiplied as they lie in the file.

The tensors of a stacked product need not be of one type: llama.cpp stores values and the way down in
more bits than the rest (Q6_K beside Q4_K). Those that are of one type are one product; otherwise each is
multiplied by itself, into its columns of the result.
What the backend has no kernel for is unpacked as it is loaded.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.gemm import BlockGemm
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
        self._whole: tuple[int, Tensor] | None = None
        self._parts = [
            _Place(
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
        """After the last one: join those of one type."""
        self._unfilled -= 1
        kind = self._parts[0].kind
        if self._unfilled or kind is None or {part.kind for part in self._parts} != {kind}:
            return
        blocks = torch.cat([part.target for part in self._parts])
        self._whole = kind, blocks
        for part, own in zip(self._parts, blocks.split(self.layout.sizes), strict=True):
            part.target = own  # what it held is given back

    def in_float32(self, x: Tensor) -> Tensor:
        return self(x).float()

    def __call__(self, x: Tensor) -> Tensor:
        out = x.new_empty(len(x), self.layout.out_features)
        if self._whole is not None:
            kind, blocks = self._whole
            self._products.product(x, blocks, kind, out)
            return out.add_(self._bias) if self.layout.bias else out
        columns = out.split(self.layout.sizes, 1)
        for part, own in zip(self._parts, columns, strict=True):
            if part.kind is None:
                own.copy_(F.linear(x, part.target))
            else:
                self._products.product(x, part.target, part.kind, own)
        return out.add_(self._bias) if self.layout.bias else out


@dataclass(slots=True)
class _Place(Destination):
    """Of one tensor [rows, columns]. target is set when it comes: its blocks [rows, bytes] uint8, or,
    with kind None, its numbers."""

    rows: int = 0
    columns: int = 0
    gemm: Any = None
    kind: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    @property
    def weight_bytes(self) -> int:
        return self.target.nbytes

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
            self.kind, self.target = packed
        if self.filled is not None:
            self.filled()
