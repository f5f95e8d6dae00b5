"""Words are bytes, seen as int32, and bytes hold two codes each."""

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight

HIGHEST = 15
"""The largest code of four bits."""
MIDDLE = 8
"""The code of 0.0 on a symmetric grid."""
IN_A_WORD = 8
"""Codes of four bits in an int32."""


def to_words(numbers: Tensor) -> Tensor:
    """Numbers [..., n] of four bits as words [..., n / 8] int32, the first in the lowest bits."""
    pairs = numbers.to(torch.uint8).unflatten(-1, (-1, 2))
    halves = pairs[..., 0] | pairs[..., 1] << 4
    return halves.contiguous().view(torch.int32)


def from_words(words: Tensor) -> Tensor:
    """The numbers [..., n] int32 that went into words [..., n / 8]."""
    halves = words.contiguous().view(torch.uint8)
    return torch.stack((halves & HIGHEST, halves >> 4), dim=-1).flatten(-2).int()


class Int4:
    """See `yaie.core.contracts.quantizing.Int4`."""

    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        """(scales [out] float16, zeros [out] int32) for one group of inputs, weights [out, n]."""
        wide = group.float()
        if symmetric:
            scales = (wide.abs().amax(dim=1) / 7.5).half()
            scales = scales.masked_fill(scales == 0, 1.0)
            return scales, torch.full_like(scales, MIDDLE, dtype=torch.int32)
        low, high = wide.amin(dim=1).clamp(max=0), wide.amax(dim=1).clamp(min=0)
        scales = ((high - low) / HIGHEST).half()
        scales = scales.masked_fill(scales == 0, 1.0)
        return scales, (-low / scales.float()).round().clamp(0, HIGHEST).int()

    def codes(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        """The nearest codes, 0 to 15, of weights [out, n] on the grid of each output: [out, n] int32."""
        steps = (weight.float() / scales[:, None].float()).round()
        return (steps + zeros[:, None]).clamp(0, HIGHEST).int()

    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
        """codes [out, in], scales and zeros [groups, out], as they are stored."""
        group_size = codes.shape[1] // len(scales)
        qweight = to_words(codes).t().contiguous()
        return Int4Weight(qweight, scales.contiguous(), to_words(zeros), group_size)

    def unpack(self, weight: Int4Weight) -> tuple[Tensor, Tensor]:
        """(codes [out, in], zeros [groups, out]), int32."""
        return from_words(weight.qweight.t()), from_words(weight.qzeros)

    def quantize(self, weight: Tensor, group_size: int, *, symmetric: bool = True) -> Int4Weight:
        """Round a weight [out, in] to the nearest codes, group by group."""
        if weight.shape[1] % group_size:
            raise ValueError(f"groups of {group_size} do not divide {weight.shape[1]} inputs")
        codes, scales, zeros = [], [], []
        for group in weight.split(group_size, dim=1):
            scale, zero = self.grid(group, symmetric=symmetric)
            codes.append(self.codes(group, scale, zero))
            scales.append(scale)
            zeros.append(zero)
        return self.pack(torch.cat(codes, dim=1), torch.stack(scales), torch.stack(zeros))

    def dequantize(self, weight: Int4Weight) -> Tensor:
        """(code - zero) * scale, of each input's group: [out, in] float32."""
        codes, zeros = self.unpack(weight)
        scales = weight.scales.float().t()[..., None]
        group = torch.arange(codes.shape[1], device=codes.device) // weight.group_size
        return (codes - zeros.t()[:, group]) * scales[:, group, 0]

    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x, one group of inputs at a time."""
        wide = x.float()
        out = torch.zeros(len(x), weight.out_features, dtype=torch.float32, device=x.device)
        size = weight.group_size
        for index in range(len(weight.scales)):
            words = weight.qweight[index * size // IN_A_WORD : (index + 1) * size // IN_A_WORD]
            steps = (
                from_words(words.t()).sub_(from_words(weight.qzeros[index]).unsqueeze(1)).float()
            )
            part = torch.mm(wide[:, index * size : (index + 1) * size], steps.t())
            out.addcmul_(part, weight.scales[index].float().expand_as(part))
        return out.to(x.dtype)
