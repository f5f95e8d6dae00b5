"""Products of few rows in CUDA C++, on weights of four bits in the order of `tiled.py` and in FP8.

    few_rows.cu   up to 16 rows of four bits: each pair of tiles is cut into a few parts
    streamed.cu   the others: the pairs are a line that is cut into equal pieces

On an H100 the four products of an 8B layer take 61 us at one row by the first and 71 by the second, and
at 32 rows 146 and 124. For more than 64 rows a weight is unpacked, and the library multiplies.
"""

import logging
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.early import starts_early
from yaie.backends.gemm.tiled import CHUNK, MOST_TILED_ROWS, TILE, TiledWeight, parts_for
from yaie.core.errors import KernelError
from yaie.core.quantized import Fp8Weight
from yaie.cuda.library import CudaLibrary

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "packed_cuda"
Packed = TiledWeight | Fp8Weight
MOST_ROWS = 32
"""Of a launch."""
MOST_FUSED_ROWS = 64
"""Up to there reading a packed weight twice takes less time than unpacking it."""
PAIR = 2 * TILE
SUMS = 256
"""Of a pair of tiles, for each eight rows."""
TURN = 8 * CHUNK
"""Inputs of a unit of work."""
LEAST_UNITS = 2
"""Of a block: with fewer it has done nothing but begin and end."""


def fits(outputs: int, inputs: int) -> bool:
    """Whether a weight [outputs, inputs] has whole pairs of tiles and whole chunks."""
    return outputs % PAIR == 0 and inputs % CHUNK == 0


def blocks_for(rows: int, n: int, k: int, multiprocessors: int) -> int:
    """Of streamed.cu: as many as run at once, see `blocks_of` in streamed.cuh."""
    each = 3 if rows <= 8 else 2
    units = n // PAIR * -(-k // TURN)
    return max(1, min(each * multiprocessors, units // LEAST_UNITS))


class StreamedGemm:
    """The launches. One for each device and stream: blocks that share a pair of tiles count in
    `_turns`."""

    def __init__(self, device: torch.device) -> None:
        """Compiles, unless that has been done. Raises KernelError without a compiler, and for a GPU on
        which these kernels are not known to run."""
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
            raise KernelError("tensor cores for bfloat16 begin with compute capability 8.0")
        self._library = CudaLibrary(FOLDER)
        self._multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        self._turns = torch.zeros(1 << 14, dtype=torch.int32, device=device)
        self.unpacked(
            Fp8Weight(
                torch.zeros(PAIR, CHUNK, dtype=torch.float8_e4m3fn, device=device),
                torch.zeros(PAIR, device=device),
            )
        )

    def product(self, x: Tensor, weight: Packed) -> Tensor:
        """x [rows, in] bfloat16 @ weight.T: [rows, out]."""
        if len(x) > MOST_FUSED_ROWS:
            return F.linear(x, self.unpacked(weight))
        return self.few_rows(x, weight)

    def few_rows(
        self,
        x: Tensor,
        weight: Packed,
        bias: Tensor | None = None,
        *,
        residual: Tensor | None = None,
        is_gated: bool = False,
    ) -> Tensor:
        """product(x) + bias, gated silu(g) * u for [g | u] = product(x) + bias, or added to residual,
        which is written over. Rows beyond MOST_ROWS are a launch more."""
        n = weight.out_features
        out = x.new_empty(len(x), n // 2 if is_gated else n) if residual is None else residual
        if x.stride(1) != 1 or x.stride(0) % 8 or x.data_ptr() % 16:
            x = x.contiguous()
        for some, into in zip(x.split(MOST_ROWS), out.split(MOST_ROWS), strict=True):
            added = None if residual is None else into
            if not len(some):
                continue
            if isinstance(weight, TiledWeight) and len(x) <= MOST_TILED_ROWS and bias is None:
                self.in_parts(some, weight, into, added, is_gated=is_gated)
            else:
                self.in_line(some, weight, into, added, bias, is_gated=is_gated)
        return out

    def in_parts(
        self,
        x: Tensor,
        weight: TiledWeight,
        out: Tensor,
        residual: Tensor | None = None,
        *,
        is_gated: bool = False,
        parts: int | None = None,
    ) -> None:
        """few_rows.cu. x: 1 to MOST_TILED_ROWS rows. residual: out, or None. parts: of the inputs."""
        rows, n, k = len(x), weight.out_features, weight.in_features
        parts = parts or parts_for(rows, n, k)
        sums = self._sums(n // PAIR * parts if parts > 1 else 1, x)
        self._library.call(
            "few_rows", x, weight.words, weight.scales, weight.zeros, None, residual, out, sums,
            self._turns, rows, x.stride(0), out.stride(0), n, k, int(is_gated), parts,
            int(starts_early(x.device)),
        )  # fmt: skip

    def in_line(
        self,
        x: Tensor,
        weight: Packed,
        out: Tensor,
        residual: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        is_gated: bool = False,
    ) -> None:
        """streamed.cu. x: 1 to MOST_ROWS rows. residual: out, or None."""
        rows, n, k = len(x), weight.out_features, weight.in_features
        if isinstance(weight, Fp8Weight):
            kind, words, scales, zeros = 8, weight.codes, weight.scales, None
        else:
            kind, words, scales, zeros = 4, weight.words, weight.scales, weight.zeros
        blocks = blocks_for(rows, n, k, self._multiprocessors)
        self._library.call(
            "streamed", x, words, scales, zeros, bias, residual, out, self._sums(2 * blocks, x),
            self._turns, rows, x.stride(0), out.stride(0), n, k, kind, int(is_gated), blocks,
            int(starts_early(x.device)),
        )  # fmt: skip

    def _sums(self, pairs: int, x: Tensor) -> Tensor:
        """What blocks leave to each other: sums of so many pairs of tiles, for each eight rows."""
        eights = 1 if len(x) <= 8 else 2 if len(x) <= 16 else 4
        return torch.empty(pairs * eights * SUMS, dtype=torch.float32, device=x.device)

    def unpacked(self, weight: Packed) -> Tensor:
        """[out, in] bfloat16: (code - zero) * scale, or code * scale."""
        n, k = weight.out_features, weight.in_features
        if isinstance(weight, Fp8Weight):
            out = torch.empty(n, k, dtype=torch.bfloat16, device=weight.codes.device)
            self._library.call("unpack8", weight.codes, weight.scales, out, n, k)
            return out
        out = torch.empty(n, k, dtype=torch.bfloat16, device=weight.words.device)
        self._library.call("unpack", weight.words, weight.scales, weight.zeros, out, n, k)
        return out


def streamed_gemm(device: torch.device) -> StreamedGemm | None:
    """None, and a warning, where they cannot be had: Triton's stand in."""
    try:
        return StreamedGemm(device)
    except KernelError as error:
        logger.warning("products of few rows are left to slower kernels: %s", error)
        return None
