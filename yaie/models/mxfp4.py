"""MXFP4, in which gpt-oss is published: experts in four bits, multiplied out as they are loaded.

By the OCP Microscaling Formats specification (version 1.0, 2023, sections 5.3.3 and 6): 32 numbers of
four bits (E2M1) share a power of two (E8M0, stored with 127 added).

name_blocks   [..., out, in / 32, 16] uint8   two numbers a byte, the first in its lower half
name_scales   [..., out, in / 32] uint8
name          [..., in, out]                  what they stand for, as transformers keeps experts
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ModelError

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


def _pairs() -> Tensor:
    """The two numbers of each byte: [256, 2] float32."""
    numbers = torch.tensor([*E2M1, *(-one for one in E2M1)])
    every = torch.arange(256)
    return torch.stack([numbers[every & 15], numbers[every >> 4]], dim=1)


_PAIRS = _pairs()
