"""Sixteen outputs at a time are turned back to floating point, scale and zero included."""

import torch
from torch import Tensor

from yaie.core.quantized import Int8Weight


class Int8:
    def quantize(self, weight: Tensor, *, symmetric: bool = True) -> Int8Weight:
        low, high = weight.float().aminmax(dim=1)
        if symmetric:
            scales = _stored(torch.maximum(high, -low) / 127)
            codes = torch.round(weight.float() / scales.float().unsqueeze(1))
            return Int8Weight(codes.clamp(-127, 127).to(torch.int8), scales)
        low, high = low.clamp(max=0), high.clamp(min=0)
        scales = _stored((high - low) / 255)
        zeros = torch.round(-low / scales.float()).clamp(0, 255).int() - 128
        codes = torch.round(weight.float() / scales.float().unsqueeze(1)).int() + zeros.unsqueeze(1)
        return Int8Weight(codes.clamp(-128, 127).to(torch.int8), scales, zeros)

    def dequantize(self, weight: Int8Weight) -> Tensor:
        zeros = torch.zeros_like(weight.scales) if weight.zeros is None else weight.zeros
        return (weight.codes.float() - zeros.unsqueeze(1)) * weight.scales.float().unsqueeze(1)

    def product(self, x: Tensor, weight: Int8Weight) -> Tensor:
        parts = [torch.zeros(len(x), 0)]
        for begin in range(0, len(weight.codes), 16):
            rows = slice(begin, begin + 16)
            zeros = None if weight.zeros is None else weight.zeros[rows]
            few = self.dequantize(Int8Weight(weight.codes[rows], weight.scales[rows], zeros))
            parts.append(x.float() @ few.t())
        return torch.cat(parts, dim=1).to(x.dtype)


def _stored(scales: Tensor) -> Tensor:
    scales = scales.to(torch.float16)
    return torch.where(scales == 0, torch.ones_like(scales), scales)
