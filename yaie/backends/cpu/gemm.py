"""Products of few rows with packed weights by the library; see `yaie.core.gemm.PackedGemm`."""

import torch
from torch import Tensor

from yaie.backends.cpu.library import Library
from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Int4Weight, Int8Weight

FEW_ROWS = 8
"""From here on a product of unpacked blocks, which oneDNN multiplies, is faster."""


class CpuGemm:
    """float32 of few rows. Lab 19 multiplies the rest."""

    def __init__(self, library: Library, plain: PackedGemm) -> None:
        self._library = library
        self._plain = plain

    def int8(self, x: Tensor, weight: Int8Weight) -> Tensor:
        if not _takes(x) or weight.zeros is not None:
            return self._plain.int8(x, weight)
        x, scales = x.contiguous(), weight.scales.float()
        out = x.new_empty(len(x), len(scales))
        self._library.int8_product(
            x.data_ptr(), weight.codes.data_ptr(), scales.data_ptr(), out.data_ptr(),
            *x.shape, len(scales), torch.get_num_threads(),
        )  # fmt: skip
        return out

    def int4(self, x: Tensor, weight: Int4Weight) -> Tensor:
        if not _takes(x):
            return self._plain.int4(x, weight)
        x, scales = x.contiguous(), weight.scales.float()
        out = x.new_empty(len(x), weight.out_features)
        self._library.int4_product(
            x.data_ptr(), weight.qweight.data_ptr(), scales.data_ptr(), weight.qzeros.data_ptr(),
            out.data_ptr(), *x.shape, weight.out_features, weight.group_size,
            torch.get_num_threads(),
        )  # fmt: skip
        return out


def _takes(x: Tensor) -> bool:
    return x.dtype == torch.float32 and 0 < len(x) <= FEW_ROWS
