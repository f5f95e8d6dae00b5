"""Products with weights in the blocks of GGUF files, by the library; see `yaie.core.gemm.BlockGemm`."""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.cpu.library import Library

KINDS = frozenset({2, 3, 8, 12, 14, 39})
"""Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and MXFP4, by ggml's numbers, as `blocks.cpp` has them."""
LARGE = frozenset({12, 14})
"""Those with 256 numbers in a block; the others have 32."""
FEW_ROWS = {torch.float32: 8, torch.bfloat16: 4}
"""Up to here blocks are unpacked in registers, for each four rows anew; beyond, once, for oneDNN, which
multiplies bfloat16 twice as fast as the registers' float32."""
EXACT_ROWS, ROW_STEP = 64, 16
"""oneDNN compiles a kernel for each number of rows: above the first they are rounded up to the
second."""
STRIP = 1 << 20
"""Numbers that are unpacked at a time: they are still in the cache when they are multiplied."""


class CpuBlockGemm:
    """See `BlockGemm`."""

    kinds = KINDS

    def __init__(self, library: Library) -> None:
        self._library = library

    def product(self, x: Tensor, blocks: Tensor, kind: int, out: Tensor) -> None:
        if len(x) <= FEW_ROWS.get(x.dtype, 0):
            self._few(x, blocks, kind, out)
            return
        inputs, count = x.shape[1], len(x)
        if count > EXACT_ROWS:
            x = F.pad(x, (0, 0, 0, -count % ROW_STEP))
        strip = max(1, STRIP // inputs)
        for start in range(0, len(blocks), strip):
            rows = blocks[start : start + strip]
            rounded = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32
            weight = torch.empty(len(rows), inputs, dtype=rounded)
            self.unpack(rows, kind, weight)
            out[:, start : start + strip] = _multiplied(x, weight)[:count]

    def unpack(self, blocks: Tensor, kind: int, out: Tensor) -> None:
        """blocks: [rows, bytes] uint8. out: [rows, columns] float32 or bfloat16, which is filled."""
        values = 256 if kind in LARGE else 32
        self._library.blocks_numbers(
            blocks.data_ptr(), out.data_ptr(), out.numel() // values, kind,
            out.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip

    def _few(self, x: Tensor, blocks: Tensor, kind: int, out: Tensor) -> None:
        wide = x.float().contiguous()
        sums = out if out.dtype == torch.float32 else torch.empty(out.shape)
        self._library.blocks_product(
            wide.data_ptr(), blocks.data_ptr(), sums.data_ptr(), *wide.shape, len(blocks),
            sums.stride(0), kind, torch.get_num_threads(),
        )  # fmt: skip
        if sums is not out:
            out.copy_(sums)


def _multiplied(x: Tensor, weight: Tensor) -> Tensor:
    """x by weight.T. oneDNN's kernel for float32 is the faster one on some processors."""
    if x.dtype != weight.dtype or not torch.backends.mkldnn.is_available():
        return F.linear(x, weight.to(x.dtype))
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return y
