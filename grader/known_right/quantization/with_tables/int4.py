"""Words are read and written as bytes, by a table that is made on the first call; the group that is
multiplied lies in a buffer of the object, which is never returned."""

from functools import cache

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight


@cache
def _pairs(device: torch.device) -> Tensor:
    """[256, 2]: the two codes of each byte, the first in its lower half."""
    numbers = torch.arange(256, dtype=torch.int32, device=device)
    return torch.stack([numbers % 16, numbers // 16], dim=1)


def to_words(numbers: Tensor) -> Tensor:
    pairs = numbers.unflatten(-1, (-1, 2)).to(torch.uint8)
    packed = pairs[..., 0] + 16 * pairs[..., 1]
    return packed.contiguous().view(torch.int32)


def from_words(words: Tensor) -> Tensor:
    packed = words.contiguous().view(torch.uint8)
    return _pairs(words.device)[packed.long()].flatten(-2)


class Int4:
    def __init__(self) -> None:
        self._steps: Tensor | None = None

    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        wide = group.double()
        if symmetric:
            scales = (wide.abs().amax(dim=1).float() / 7.5).half()
            zeros = torch.tensor([8], dtype=torch.int32).repeat(len(group))
        else:
            low, high = (end.float() for end in wide.aminmax(dim=1))
            low, high = low.clamp(max=0), high.clamp(min=0)
            scales = ((high - low) / 15).half()
            exact = -low / torch.where(scales == 0, 1, scales.float())
            zeros = exact.round().clamp(0, 15).int()
        return torch.where(scales == 0, torch.ones_like(scales), scales), zeros

    def codes(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        exact = weight.float().t() / scales.float()
        return (exact.round() + zeros).clamp(0, 15).int().t()

    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
        words = to_words(codes).t().contiguous()
        size = codes.shape[1] // scales.shape[0]
        return Int4Weight(words, scales.contiguous(), to_words(zeros), size)

    def unpack(self, weight: Int4Weight) -> tuple[Tensor, Tensor]:
        return from_words(weight.qweight.t()), from_words(weight.qzeros)

    def quantize(self, weight: Tensor, group_size: int, *, symmetric: bool = True) -> Int4Weight:
        out, inputs = weight.shape
        if inputs % group_size:
            raise ValueError(f"{inputs} inputs, groups of {group_size}")
        codes = torch.empty(out, inputs, dtype=torch.int32, device=weight.device)
        scales = torch.empty(inputs // group_size, out, dtype=torch.float16, device=weight.device)
        zeros = torch.empty_like(scales, dtype=torch.int32)
        for index in range(len(scales)):
            own = slice(index * group_size, (index + 1) * group_size)
            scales[index], zeros[index] = self.grid(weight[:, own], symmetric=symmetric)
            codes[:, own] = self.codes(weight[:, own], scales[index], zeros[index])
        return self.pack(codes, scales, zeros)

    def dequantize(self, weight: Int4Weight) -> Tensor:
        codes, zeros = self.unpack(weight)
        group = torch.arange(codes.shape[1], device=codes.device) // weight.group_size
        return (codes - zeros[group].t()) * weight.scales[group].t().float()

    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        total = torch.zeros(len(x), weight.out_features, device=x.device)
        words = weight.group_size // 8
        shape = (weight.out_features, weight.group_size)
        if self._steps is None or self._steps.shape != shape or self._steps.device != x.device:
            self._steps = torch.empty(shape, device=x.device)
        for index in range(len(weight.scales)):
            rows = weight.qweight[index * words : (index + 1) * words]
            self._steps.copy_(from_words(rows.t()))
            self._steps -= from_words(weight.qzeros[index])[:, None]
            inputs = x[:, index * weight.group_size : (index + 1) * weight.group_size].float()
            total.addcmul_(inputs @ self._steps.t(), weight.scales[index].float())
        return total.to(x.dtype)
