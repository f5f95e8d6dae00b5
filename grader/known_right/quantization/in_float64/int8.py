"""Grids and codes are worked out in float64, and products 48 outputs at a time."""

import torch
from torch import Tensor

from yaie.core.quantized import Int8Weight

OUTPUTS = 48
"""Of a weight that are there in floating point at a time."""


class Int8:
    """See `yaie.core.contracts.quantizing.Int8`."""

    def quantize(self, weight: Tensor, *, symmetric: bool = True) -> Int8Weight:
        """Round a weight [out, in] to the nearest code of its row."""
        wide = weight.double()
        if symmetric:
            scales = _usable(wide.abs().amax(dim=1) / 127)
            codes = wide.div(scales.double()[:, None]).round_().clamp_(-127, 127)
            return Int8Weight(codes.to(torch.int8), scales)
        low, high = wide.amin(dim=1).clamp(max=0), wide.amax(dim=1).clamp(min=0)
        scales = _usable((high - low) / 255)
        zeros = (-128 - low / scales.double()).round().clamp(-128, 127)
        codes = (wide / scales.double()[:, None]).round() + zeros[:, None]
        return Int8Weight(codes.clamp(-128, 127).to(torch.int8), scales, zeros.int())

    def dequantize(self, weight: Int8Weight) -> Tensor:
        """(code - zero) * scale: [out, in] float32."""
        codes = weight.codes.float()
        if weight.zeros is not None:
            codes = codes - weight.zeros[:, None]
        return codes * weight.scales[:, None].float()

    def product(self, x: Tensor, weight: Int8Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x, summed in float32.

        Scale and zero are the same for every number of a row, so both can wait until it has been summed:
        the sum of x * (code - zero) * scale is (x @ codes - zero * sum of x) * scale.
        """
        wide = x.float()
        out = torch.empty(len(x), len(weight.codes), dtype=x.dtype, device=x.device)
        for begin in range(0, len(weight.codes), OUTPUTS):
            rows = slice(begin, begin + OUTPUTS)
            steps = weight.codes[rows].int()
            if weight.zeros is not None:
                steps = steps - weight.zeros[rows, None]
            out[:, rows] = (
                torch.einsum("ri,oi->ro", wide, steps.float()) * weight.scales[rows].float()
            )
        return out


def _usable(scales: Tensor) -> Tensor:
    """Scales as they are stored; none of them is 0, by which nothing could be divided."""
    rounded = scales.half()
    return rounded.masked_fill(rounded == 0, 1.0)
