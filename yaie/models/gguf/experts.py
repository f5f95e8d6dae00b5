"""Experts that stay in the blocks of a GGUF, in MXFP4 or in what the file has instead."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.core.gemm import BlockGemm, BlockWeight
from yaie.models.experts import ExpertProducts, Groups, PlainExperts
from yaie.models.layout import Destination


class FileExperts(ExpertProducts):
    """As the file has them, where there are products for their type; otherwise unpacked. A step reads
    those of the experts that its tokens chose."""

    def __init__(self, inputs: int, bias: Tensor, products: BlockGemm) -> None:
        """inputs: of each product. bias: [experts, out]."""
        super().__init__(bias)
        self._products = products
        count, self._outputs = bias.shape
        shape = (count, inputs, self._outputs)
        self._place = _Place(torch.empty(0, dtype=bias.dtype), stacked=shape, products=products)

    def destinations(self, name: str) -> dict[str, Destination]:
        return {name: self._place, **self.of_bias(name)}

    def multiply(self, x: Tensor, groups: Groups) -> Tensor:
        if self._place.blocks is None:
            return PlainExperts(self._place.target).multiply(x, groups)
        y = x.new_empty(len(x), self._outputs)
        for expert, rows in groups.spans():
            self._products.product(x[rows], self._place.blocks[expert], y[rows])
        return y


@dataclass(slots=True)
class _Place(Destination):
    """Of experts [experts, in, out], `stacked`. When they come blocks is set, of each expert, or target
    to their numbers."""

    stacked: tuple[int, int, int] = (0, 0, 0)
    products: Any = None
    blocks: list[BlockWeight] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stacked

    @property
    def weight_bytes(self) -> int:
        if self.blocks is None:
            return self.target.nbytes
        return sum(one.nbytes for one in self.blocks)

    def fill(self, tensor: Any) -> None:
        """Take a tensor over. Raises ValueError on another shape."""
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"has shape {list(tensor.shape)} instead of {list(self.shape)}")
        packed = tensor.expert_blocks(self.products.kinds)
        if packed is None:
            numbers = tensor[(slice(None),) * 3]
            self.target = torch.empty(self.shape, dtype=self.target.dtype).copy_(numbers)
        else:
            kind, experts = packed
            inputs = self.stacked[1]
            self.blocks = [self.products.arranged(rows, kind, inputs) for rows in experts]
