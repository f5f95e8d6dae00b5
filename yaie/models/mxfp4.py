"""MXFP4, in which gpt-oss is published: experts in four bits.

They stay in four bits (`BlockExperts`) where an adapter takes them and a backend multiplies them, on a
CPU. Otherwise they are multiplied out as they are loaded.

By the OCP Microscaling Formats specification (version 1.0, 2023, sections 5.3.3 and 6): 32 numbers of
four bits (E2M1) share a power of two (E8M0, stored with 127 added).

name_blocks   [..., out, in / 32, 16] uint8   two numbers a byte, the first in its lower half
name_scales   [..., out, in / 32] uint8
name          [..., in, out]                  what they stand for, as transformers keeps experts

A GGUF has the same in one block of 17 bytes: the scale, then the codes, where a byte's lower half is one
of the first 16 numbers and the upper half one of the others. What is kept here is in this order.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ModelError
from yaie.core.gemm import BlockGemm, BlockWeight
from yaie.models.experts import ExpertProducts, Groups
from yaie.models.layout import Destination

GGML = 39
"""ggml's number of this type, by which a `BlockGemm` knows it."""
BLOCKS, SCALES = "_blocks", "_scales"
PER_BYTE, BLOCK, BIAS = 2, 32, 127
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of the codes 0 to 7; 8 to 15 are their negatives."""


def multiplied_out(
    tensors: Iterable[tuple[str, Any]], dtype: torch.dtype
) -> Iterator[tuple[str, Any]]:
    """A checkpoint's tensors with each pair of blocks and scales as the weight that it stands for, and
    the others as they are.

    Raises ModelError for blocks without scales, or scales without blocks, and for other shapes.
    """
    alone: dict[str, tuple[str, Tensor]] = {}
    for name, tensor in tensors:
        suffix = next((one for one in (BLOCKS, SCALES) if name.endswith(one)), None)
        if suffix is None:
            yield name, tensor
            continue
        weight = name.removesuffix(suffix)
        if weight not in alone:
            alone[weight] = suffix, tensor[(slice(None),) * len(tensor.shape)]
            continue
        (_, first), second = alone.pop(weight), tensor[(slice(None),) * len(tensor.shape)]
        pair = (first, second) if suffix == SCALES else (second, first)
        if pair[0].dim() < 3 or pair[0].shape[:-1] != pair[1].shape:
            raise ModelError(
                f"{weight}: blocks of shape {list(pair[0].shape)} and scales of shape "
                f"{list(pair[1].shape)} do not belong together. Fetch the model again."
            )
        yield weight, dense(pair[0], pair[1], dtype)
    if alone:
        weight, (suffix, _) = next(iter(alone.items()))
        other = SCALES if suffix == BLOCKS else BLOCKS
        raise ModelError(
            f"{weight}{suffix} is there and {weight}{other} is not: the checkpoint is cut short. Fetch "
            "the model again."
        )


def dense(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight [..., in, out] that blocks [..., out, in / 32, 16] and scales [..., out, in / 32] stand
    for. Exact in bfloat16 and float32, which have the exponents of E8M0."""
    *before, outputs, groups, size = blocks.shape
    weight = torch.empty(*before, groups * size * PER_BYTE, outputs, dtype=dtype)
    flat = weight.view(-1, *weight.shape[-2:])
    pairs = zip(
        blocks.reshape(-1, outputs, groups, size),
        scales.reshape(-1, outputs, groups),
        strict=True,
    )
    # One expert at a time: its numbers are four times its codes.
    for expert, (codes, exponents) in enumerate(pairs):
        numbers = _PAIRS[codes.long()].flatten(-2)  # [out, in / 32, 32]
        scaled = torch.ldexp(numbers, exponents.int()[..., None] - BIAS)
        flat[expert].copy_(scaled.flatten(1).t())
    return weight


class BlockExperts(ExpertProducts):
    """Weights that stay in their blocks. A step reads those of the experts that its tokens chose."""

    def __init__(self, inputs: int, bias: Tensor, products: BlockGemm) -> None:
        """inputs: of each product, a multiple of 32. bias: [experts, out]."""
        super().__init__(bias)
        self._products, self._inputs, self._outputs = products, inputs, bias.shape[1]
        size = 1 + BLOCK // PER_BYTE
        self._stored = torch.empty(*bias.shape, inputs // BLOCK, size, dtype=torch.uint8)
        self._unfilled = 2
        self._weights: list[BlockWeight] = []

    def destinations(self, name: str) -> dict[str, Destination]:
        scales, codes = self._stored[..., 0], self._stored[..., 1:]
        return {
            f"{name}{BLOCKS}": Destination(codes, filled=self._filled, parameters=PER_BYTE),
            f"{name}{SCALES}": Destination(scales, filled=self._filled, parameters=0),
            **self.of_bias(name),
        }

    def _filled(self) -> None:
        self._unfilled -= 1
        if self._unfilled:
            return
        for blocks in self._stored:
            put_in_halves(blocks[..., 1:])
            weight = self._products.arranged(blocks.flatten(1), GGML, self._inputs)
            self._weights.append(weight)
        self._stored.untyped_storage().resize_(0)  # destinations name it until all layers are there

    def multiply(self, x: Tensor, groups: Groups) -> Tensor:
        y = x.new_empty(len(x), self._outputs)
        for expert, rows in groups.spans():
            self._products.product(x[rows], self._weights[expert], y[rows])
        return y


def put_in_halves(codes: Tensor) -> None:
    """Change blocks [..., 16] of neighbours in a byte into ggml's order, in place."""
    before, behind = codes.split(BLOCK // PER_BYTE // 2, dim=-1)
    low = (before & 15) | (behind << 4)
    high = (before >> 4) | (behind & 240)
    codes.copy_(torch.stack([low, high], dim=-1).flatten(-2))


def _pairs() -> Tensor:
    """The two numbers of each byte: [256, 2] float32."""
    numbers = torch.tensor([*E2M1, *(-one for one in E2M1)])
    every = torch.arange(256)
    return torch.stack([numbers[every & 15], numbers[every >> 4]], dim=1)


_PAIRS = _pairs()
