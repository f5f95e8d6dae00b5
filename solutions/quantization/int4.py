"""Four bits a weight: a scale and a zero for each group of inputs, eight codes in a word."""

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight

HIGHEST = 15
"""The largest code of four bits."""
MIDDLE = 8
"""The code of 0.0 on a symmetric grid."""
IN_A_WORD = 8
"""Codes of four bits in an int32."""


# ANCHOR: words
def to_words(numbers: Tensor) -> Tensor:
    """Numbers [..., n] of four bits as words [..., n / 8] int32, the first in the lowest bits."""
    # BEGIN SOLUTION 19.2
    shifts = 4 * torch.arange(IN_A_WORD, device=numbers.device)
    words = (numbers.long().unflatten(-1, (-1, IN_A_WORD)) << shifts).sum(dim=-1)
    return words.int()  # keeps the lowest 32 bits: from 2**31 on a word is negative
    # END SOLUTION


def from_words(words: Tensor) -> Tensor:
    """The numbers [..., n] int32 that went into words [..., n / 8]."""
    # BEGIN SOLUTION 19.2
    shifts = 4 * torch.arange(IN_A_WORD, dtype=torch.int32, device=words.device)
    return ((words[..., None] >> shifts) & HIGHEST).flatten(-2)
    # END SOLUTION


# ANCHOR_END: words


class Int4:
    """See `yaie.core.contracts.quantizing.Int4`."""

    # ANCHOR: grid
    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        """(scales [out] float16, zeros [out] int32) for one group of inputs, weights [out, n]."""
        wide = group.float()
        # BEGIN SOLUTION 19.2
        if symmetric:
            scales = (wide.abs().amax(dim=1) / 7.5).half()
            scales = scales.masked_fill(scales == 0, 1.0)
            return scales, torch.full_like(scales, MIDDLE, dtype=torch.int32)
        low, high = wide.amin(dim=1).clamp(max=0), wide.amax(dim=1).clamp(min=0)
        scales = ((high - low) / HIGHEST).half()
        scales = scales.masked_fill(scales == 0, 1.0)
        return scales, (-low / scales.float()).round().clamp(0, HIGHEST).int()
        # END SOLUTION

    def codes(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        """The nearest codes, 0 to 15, of weights [out, n] on the grid of each output: [out, n] int32."""
        # BEGIN SOLUTION 19.2
        steps = (weight.float() / scales[:, None].float()).round()
        return (steps + zeros[:, None]).clamp(0, HIGHEST).int()
        # END SOLUTION

    # ANCHOR_END: grid

    # ANCHOR: pack
    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
        """codes [out, in], scales and zeros [groups, out], as they are stored."""
        # BEGIN SOLUTION 19.2
        group_size = codes.shape[1] // len(scales)
        qweight = to_words(codes).t().contiguous()
        return Int4Weight(qweight, scales.contiguous(), to_words(zeros), group_size)
        # END SOLUTION

    def unpack(self, weight: Int4Weight) -> tuple[Tensor, Tensor]:
        """(codes [out, in], zeros [groups, out]), int32."""
        # BEGIN SOLUTION 19.2
        return from_words(weight.qweight.t()), from_words(weight.qzeros)
        # END SOLUTION

    # ANCHOR_END: pack

    # ANCHOR: int4
    def quantize(self, weight: Tensor, group_size: int, *, symmetric: bool = True) -> Int4Weight:
        """Round a weight [out, in] to the nearest codes, group by group."""
        if weight.shape[1] % group_size:
            raise ValueError(f"groups of {group_size} do not divide {weight.shape[1]} inputs")
        # BEGIN SOLUTION 19.2
        codes, scales, zeros = [], [], []
        for group in weight.split(group_size, dim=1):
            scale, zero = self.grid(group, symmetric=symmetric)
            codes.append(self.codes(group, scale, zero))
            scales.append(scale)
            zeros.append(zero)
        return self.pack(torch.cat(codes, dim=1), torch.stack(scales), torch.stack(zeros))
        # END SOLUTION

    def dequantize(self, weight: Int4Weight) -> Tensor:
        """(code - zero) * scale, of each input's group: [out, in] float32."""
        # BEGIN SOLUTION 19.2
        codes, zeros = self.unpack(weight)
        scales = weight.scales.float().t()[..., None]
        steps = codes.unflatten(1, (-1, weight.group_size)) - zeros.t()[..., None]
        return (steps * scales).flatten(1)
        # END SOLUTION

    # ANCHOR_END: int4

    # ANCHOR: int4_product
    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x, one group of inputs at a time."""
        wide = x.float()
        out = torch.zeros(len(x), weight.out_features, dtype=torch.float32, device=x.device)
        # BEGIN SOLUTION 19.3
        size = weight.group_size
        words = weight.qweight.split(size // IN_A_WORD)
        for index, inputs in enumerate(wide.split(size, dim=1)):
            codes = from_words(words[index].t())
            steps = codes - from_words(weight.qzeros[index])[:, None]
            out += (inputs @ steps.float().t()) * weight.scales[index].float()
        # END SOLUTION
        return out.to(x.dtype)

    # ANCHOR_END: int4_product
