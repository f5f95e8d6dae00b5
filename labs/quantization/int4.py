# Lab 19, your part (edition 2): tasks 19.2, 19.3. The rest is given.
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
    # TODO 19.2: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "quantization task 19.2: not implemented yet; see chapter Quantization"
    )


def from_words(words: Tensor) -> Tensor:
    """The numbers [..., n] int32 that went into words [..., n / 8]."""
    # TODO 19.2: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "quantization task 19.2: not implemented yet; see chapter Quantization"
    )


# ANCHOR_END: words


class Int4:
    """See `yaie.core.contracts.quantizing.Int4`."""

    # ANCHOR: grid
    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        """(scales [out] float16, zeros [out] int32) for one group of inputs, weights [out, n]."""
        wide = group.float()
        # TODO 19.2: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    def codes(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        """The nearest codes, 0 to 15, of weights [out, n] on the grid of each output: [out, n] int32."""
        # TODO 19.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: grid

    # ANCHOR: pack
    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
        """codes [out, in], scales and zeros [groups, out], as they are stored."""
        # TODO 19.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    def unpack(self, weight: Int4Weight) -> tuple[Tensor, Tensor]:
        """(codes [out, in], zeros [groups, out]), int32."""
        # TODO 19.2: your code here (the reference: 1 line).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: pack

    # ANCHOR: int4
    def quantize(self, weight: Tensor, group_size: int, *, symmetric: bool = True) -> Int4Weight:
        """Round a weight [out, in] to the nearest codes, group by group."""
        if weight.shape[1] % group_size:
            raise ValueError(f"groups of {group_size} do not divide {weight.shape[1]} inputs")
        # TODO 19.2: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    def dequantize(self, weight: Int4Weight) -> Tensor:
        """(code - zero) * scale, of each input's group: [out, in] float32."""
        # TODO 19.2: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "quantization task 19.2: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: int4

    # ANCHOR: int4_product
    def product(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x, one group of inputs at a time."""
        wide = x.float()
        out = torch.zeros(len(x), weight.out_features, dtype=torch.float32, device=x.device)
        # TODO 19.3: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "quantization task 19.3: not implemented yet; see chapter Quantization"
        )
        return out.to(x.dtype)

    # ANCHOR_END: int4_product
