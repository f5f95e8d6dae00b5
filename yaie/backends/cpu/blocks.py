"""Products with weights in the blocks of GGUF files, by the library; see `yaie.core.gemm.BlockGemm`."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.cpu.library import BlockPart, BlocksProduct, Library
from yaie.system.processor import flags

VALUES = {2: 32, 3: 32, 8: 32, 12: 256, 14: 256, 39: 32}
"""Numbers in a block of Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and MXFP4, by ggml's numbers, as `kinds.h` has
them."""
DTYPES = (torch.float32, torch.bfloat16)
"""Of x that the library multiplies; another is converted to float32 before it."""
FEW_ROWS, SOME_ROWS = 64, 160
"""Above the first, a weight is unpacked for oneDNN where that has matrix units for bfloat16, or the
library no instructions for whole numbers. Where both have instructions: above the second, in bfloat16,
since they are about as fast then. Measured on Zen 4 and Sapphire Rapids."""
EVERY = 1 << 62
ROW_STEP = 16
"""oneDNN compiles a kernel for each number of rows: they are rounded up to this."""
STRIP = 1 << 20
"""Numbers that are unpacked at a time: they are still in the cache when they are multiplied."""


@dataclass(frozen=True, slots=True)
class InterleavedBlocks:
    """A weight whose outputs lie in tiles as wide as the library's vectors, so that lanes are outputs.

    tiles: of each stacked part, uint8, a tile behind the other; see `kinds.h`. parts: an array of
    `BlockPart` that points to them. sizes: outputs of each.
    """

    tiles: tuple[Tensor, ...]
    parts: "ctypes.Array[BlockPart]"
    in_features: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Tensor, outputs: int, in_features: int, kind: int) -> "InterleavedBlocks":
        """A weight of one part."""
        parts = (BlockPart * 1)(BlockPart(tiles.data_ptr(), outputs, kind))
        return cls((tiles,), parts, in_features, (outputs,))

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.tiles)


class CpuBlockGemm:
    """See `BlockGemm`."""

    kinds = frozenset(VALUES)

    def __init__(self, library: Library) -> None:
        self._library = library
        has_dots, found = library.has_dots, flags()
        rows_of_bfloat16 = SOME_ROWS if "avx512_bf16" in found else EVERY
        self.most_rows = {
            torch.float32: EVERY if has_dots else FEW_ROWS,
            torch.bfloat16: FEW_ROWS if "amx_bf16" in found or not has_dots else rows_of_bfloat16,
        }

    def arranged(self, rows: Tensor, kind: int, in_features: int) -> InterleavedBlocks:
        """See `BlockGemm`."""
        outputs, lanes = len(rows), self._library.lanes
        shape = -(-outputs // lanes), in_features // VALUES[kind], self._library.block_bytes(kind)
        tiles = torch.zeros(shape, dtype=torch.uint8)
        self._library.arrange_blocks(
            rows.contiguous().data_ptr(), tiles.data_ptr(), in_features, outputs, kind,
            torch.get_num_threads(),
        )  # fmt: skip
        return InterleavedBlocks.of(tiles, outputs, in_features, kind)

    def stacked(self, weights: Sequence[InterleavedBlocks]) -> InterleavedBlocks:
        """See `BlockGemm`."""
        parts = [part for weight in weights for part in weight.parts]
        return InterleavedBlocks(
            tuple(tiles for weight in weights for tiles in weight.tiles),
            (BlockPart * len(parts))(*parts),
            weights[0].in_features,
            tuple(size for weight in weights for size in weight.sizes),
        )

    def product(
        self, x: Tensor, weight: InterleavedBlocks, out: Tensor, bias: Tensor | None = None
    ) -> None:
        """See `BlockGemm`."""
        if not self.is_best(x):
            self._product_of_many(x, weight, out)
        elif x.dtype in DTYPES:
            self.multiply(x, weight, out, bias=bias)
            return
        else:
            sums = torch.empty(out.shape)
            self.multiply(x.float(), weight, sums)
            out.copy_(sums)
        if bias is not None:
            out.add_(bias)

    def is_best(self, x: Tensor) -> bool:
        """Whether the library multiplies such rows faster than oneDNN does by an unpacked weight."""
        return len(x) <= self.most_rows.get(x.dtype, EVERY)

    def multiply(
        self,
        x: Tensor,
        weight: InterleavedBlocks,
        out: Tensor,
        *,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        gain: Tensor | None = None,
        eps: float = 0.0,
        gated: bool = False,
    ) -> None:
        """out = x by the weight, of a dtype among `DTYPES`, with what stands around the product.

        gain: x is normed by it first. bias and residual are added, in that order; residual lies as out
        does, and may be out. gated: what is kept is silu of the first half of the outputs by the second.
        """
        x = x.contiguous()
        call = BlocksProduct(
            ctypes.addressof(weight.parts), x.data_ptr(), _address(gain), _address(bias),
            _address(residual), out.data_ptr(), len(x), weight.in_features, out.stride(0), eps,
            len(weight.sizes), gated, x.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        self._library.blocks_product(ctypes.byref(call))

    def numbers(self, weight: InterleavedBlocks, out: Tensor, part: int = 0, tile: int = 0) -> None:
        """out: [in features, outputs] float32 or bfloat16, is filled with the numbers of so many outputs
        of a part, from a tile on."""
        place = weight.tiles[part][tile].data_ptr()
        some = BlockPart(place, out.shape[1], weight.parts[part].kind)
        self._library.blocks_numbers(
            ctypes.byref(some), out.data_ptr(), weight.in_features, out.dtype == torch.bfloat16,
            torch.get_num_threads(),
        )  # fmt: skip

    def rows(self, weight: InterleavedBlocks, which: Tensor, out: Tensor) -> None:
        """See `BlockGemm`."""
        which = which.long().contiguous()
        self._library.blocks_rows(
            ctypes.byref(weight.parts), which.data_ptr(), out.data_ptr(), len(which),
            weight.in_features, out.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip

    def _product_of_many(self, x: Tensor, weight: InterleavedBlocks, out: Tensor) -> None:
        inputs, count, lanes = weight.in_features, len(x), self._library.lanes
        x = F.pad(x, (0, 0, 0, -count % ROW_STEP))
        dtype = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32
        step = max(1, STRIP // inputs // lanes)
        first = 0
        for part, size in enumerate(weight.sizes):
            for tile in range(0, len(weight.tiles[part]), step):
                numbers = torch.empty(inputs, min(size - tile * lanes, step * lanes), dtype=dtype)
                self.numbers(weight, numbers, part, tile)
                columns = slice(first + tile * lanes, first + tile * lanes + numbers.shape[1])
                out[:, columns] = _multiplied(x, numbers.t())[:count]
            first += size


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _multiplied(x: Tensor, weight: Tensor) -> Tensor:
    """x by weight.T. oneDNN's kernel for float32 is the faster one on some processors."""
    if x.dtype != weight.dtype or not torch.backends.mkldnn.is_available():
        return F.linear(x, weight.to(x.dtype))
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return y
