"""Words are filled nibble by nibble with `|`; grids of all groups are taken in one pass."""

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight

HIGHEST = 15
MIDDLE = 8


def to_words(numbers: Tensor) -> Tensor:
    numbers = numbers.int()
    words = torch.zeros_like(numbers[..., ::8])
    for nibble in range(8):
        words |= numbers[..., nibble::8] << (4 * nibble)
    return words


def from_words(words: Tensor) -> Tensor:
    nibbles = [(words >> (4 * nibble)) & 15 for nibble in range(8)]
    return torch.stack(nibbles, dim=-1).flatten(-2)


class Int4:
    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        scales, zeros = self._grids(group.float()[:, None], symmetric)
        return scales[0], zeros[0]

    def _grids(self, weight: Tensor, symmetric: bool) -> tuple[Tensor, Tensor]:
        """weight: [out, groups, size]; returns [groups, out] twice."""
        nothing = torch.zeros_like(weight[..., :1])
        with_zero = torch.cat([weight, nothing], dim=-1)
        low, high = (x.t() for x in with_zero.aminmax(dim=-1))
        if symmetric:
            high = torch.maximum(high, -low)
            low = -high
        scales = ((high - low) / 15).to(torch.float16)
        scales = torch.where(scales > 0, scales, torch.ones_like(scales))
        if symmetric:
            return scales, torch.full(scales.shape, MIDDLE, dtype=torch.int32)
        return scales, torch.round(-low / scales.float()).clamp(max=15).int()

    def codes(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        steps = torch.round(weight.float() / scales.float().unsqueeze(1)).int()
        return torch.clamp(steps + zeros.unsqueeze(1), 0, HIGHEST).int()

    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
        words = to_words(codes).t().contiguous()
        return Int4Weight(
            words, scales.contiguous(), to_words(zeros), codes.shape[1] // len(scales)
        )

    def unpack(self, weight: Int4Weight) -> tuple[Tensor, Tensor]:
        return from_words(weight.qweight.t().contiguous()), from_words(weight.qzeros)

    def quantize(self, weight: Tensor, group_size: int, *, symmetric: bool = True) -> Int4Weight:
        if weight.shape[1] % group_size:
            raise ValueError(f"{weight.shape[1]} inputs are not groups of {group_size}")
        grouped = weight.float().unflatten(1, (-1, group_size))
        scales, zeros = self._grids(grouped, symmetric)
        steps = torch.round(grouped / scales.float().t()[..., None]) + zeros.t()[..., None]
        return self.pack(steps.clamp(0, 15).int().flatten(1), scales, zeros)

    def dequantize(self, weight: Int4Weight) -> Tensor:
        codes, zeros = self.unpack(weight)
        wide = zeros.t().repeat_interleave(weight.group_size, dim=1)
        return (codes - wide) * weight.scales.float().t().repeat_interleave(
            weight.group_size, dim=1
        )

    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """Word by word: eight inputs at a time. The zero is taken off each sum."""
        wide = x.float()
        total = torch.zeros(len(x), weight.out_features)
        zeros = [from_words(row) for row in weight.qzeros]
        for index, eight in enumerate(wide.split(8, dim=1)):
            group = 8 * index // weight.group_size
            codes = from_words(weight.qweight[index][:, None])
            part = eight @ codes.float().t()
            part -= eight.sum(dim=1, keepdim=True) * zeros[group]
            total += part * weight.scales[group].float()
        return total.to(x.dtype)
