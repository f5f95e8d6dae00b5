"""Scales in float64 until they are stored; a product piece by piece in a buffer of the object."""

import torch
from torch import Tensor

from yaie.core.quantized import Int8Weight


class Int8:
    def __init__(self) -> None:
        self._piece = torch.empty(0)

    def quantize(self, weight: Tensor, *, symmetric: bool = True) -> Int8Weight:
        wide = weight.float()
        if symmetric:
            scales = self._stored(wide.abs().max(dim=1).values / 127)
            exact = wide.t() / scales.float()
            return Int8Weight(exact.t().round().clamp(-127, 127).to(torch.int8), scales)
        zero = wide.new_zeros(len(wide), 1)
        ends = torch.cat([wide, zero], dim=1)
        low, high = ends.min(dim=1).values, ends.max(dim=1).values
        scales = self._stored((high - low) / 255)
        zeros = (-128 - low / scales.float()).round().clamp(-128, 127).int()
        codes = (wide / scales.float()[:, None]).round().add_(zeros[:, None]).clamp_(-128, 127)
        return Int8Weight(codes.to(torch.int8), scales, zeros)

    def _stored(self, scales: Tensor) -> Tensor:
        rounded = scales.half()
        rounded[rounded == 0] = 1
        return rounded

    def dequantize(self, weight: Int8Weight) -> Tensor:
        codes = weight.codes.int()
        if weight.zeros is not None:
            codes -= weight.zeros[:, None]
        return codes * weight.scales.float()[:, None]

    def product(self, x: Tensor, weight: Int8Weight) -> Tensor:
        wide, total = x.float(), x.float().sum(dim=1)
        result = torch.empty(len(x), len(weight.codes), dtype=x.dtype, device=x.device)
        inputs = weight.codes.shape[1]
        if self._piece.shape[-1:] != (inputs,) or self._piece.device != x.device:
            self._piece = torch.empty(32, inputs, device=x.device)
        for begin in range(0, len(weight.codes), 32):
            codes = weight.codes[begin : begin + 32]
            piece = self._piece[: len(codes)].copy_(codes)
            sums = wide @ piece.t()
            if weight.zeros is not None:
                sums.addr_(total, weight.zeros[begin : begin + 32].float(), alpha=-1)
            result[:, begin : begin + 32] = sums * weight.scales[begin : begin + 32].float()
        return result
