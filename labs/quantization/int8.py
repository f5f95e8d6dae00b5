# Lab 19, your part (edition 2): tasks 19.1, 19.3. The rest is given.
"""Eight bits a weight, and a scale for each row: what SmoothQuant and LLM.int8() call per-channel."""

import torch
from torch import Tensor

from yaie.core.quantized import Int8Weight

OUTPUTS = 64
"""Of a weight that are there in floating point at a time."""


class Int8:
    """See `yaie.core.contracts.quantizing.Int8`."""

    # ANCHOR: int8
    def quantize(self, weight: Tensor, *, symmetric: bool = True) -> Int8Weight:
        """Round a weight [out, in] to the nearest code of its row."""
        wide = weight.float()
        # TODO 19.1: your code here (the reference: 9 lines).
        raise NotImplementedError(
            "quantization task 19.1: not implemented yet; see chapter Quantization"
        )

    def dequantize(self, weight: Int8Weight) -> Tensor:
        """(code - zero) * scale: [out, in] float32."""
        # TODO 19.1: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "quantization task 19.1: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: int8

    # ANCHOR: int8_product
    def product(self, x: Tensor, weight: Int8Weight) -> Tensor:
        """x @ dequantize(weight).T: [rows, out] in the dtype of x, summed in float32.

        Scale and zero are the same for every number of a row, so both can wait until it has been summed:
        the sum of x * (code - zero) * scale is (x @ codes - zero * sum of x) * scale.
        """
        wide = x.float()
        out = torch.empty(len(x), len(weight.codes), dtype=x.dtype, device=x.device)
        # TODO 19.3: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "quantization task 19.3: not implemented yet; see chapter Quantization"
        )
        return out

    # ANCHOR_END: int8_product


def _usable(scales: Tensor) -> Tensor:
    """Scales as they are stored; none of them is 0, by which nothing could be divided."""
    # TODO 19.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "quantization task 19.1: not implemented yet; see chapter Quantization"
    )
