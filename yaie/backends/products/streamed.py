"""Products of few rows by `packed_cuda/streamed.cu`: on weights of four bits in the order of
`tiled.py`, on weights in FP8, and on weights in bfloat16.

For more rows a packed weight is unpacked, and the library multiplies.
"""

import logging

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.early import starts_early
from yaie.backends.products.tiled import CHUNK, FOLDER, TILE, TiledWeight
from yaie.core.errors import KernelError
from yaie.core.quantized import Fp8Weight
from yaie.cuda.library import CudaLibrary

logger = logging.getLogger(__name__)

Streamable = TiledWeight | Fp8Weight | Tensor
MOST_ROWS = 32
"""Of a launch."""
MOST_PLAIN_ROWS = 16
"""The same on a weight in bfloat16."""
MOST_FUSED_ROWS = 64
"""Up to there reading a packed weight twice takes less time than unpacking it."""
PAIR = 2 * TILE
SUMS = 2 * 256
"""Of a block, for each eight rows."""
TURN = 8 * CHUNK
"""Inputs of a unit of work."""
LEAST_UNITS = 2
"""Of a block: with fewer it has done nothing but begin and end."""


def fits(outputs: int, inputs: int) -> bool:
    """Whether a weight [outputs, inputs] has whole pairs of tiles and whole chunks."""
    return outputs % PAIR == 0 and inputs % CHUNK == 0


def blocks_for(rows: int, kind: int, n: int, k: int, multiprocessors: int) -> int:
    """As many as run at once, see `blocks_of` in streamed.cuh."""
    each = 3 if kind < 16 and rows <= 8 else 2
    units = n // PAIR * -(-k // TURN)
    return max(1, min(each * multiprocessors, units // LEAST_UNITS))


class StreamedProducts:
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

    def product(self, x: Tensor, weight: TiledWeight | Fp8Weight) -> Tensor:
        """x [rows, in] bfloat16 @ weight.T: [rows, out]."""
        if len(x) > MOST_FUSED_ROWS:
            return F.linear(x, self.unpacked(weight))
        return self.few_rows(x, weight)

    def few_rows(
        self,
        x: Tensor,
        weight: Streamable,
        bias: Tensor | None = None,
        *,
        residual: Tensor | None = None,
        is_gated: bool = False,
    ) -> Tensor:
        """product(x) + bias, gated silu(g) * u for [g | u] = product(x) + bias, or added to residual,
        which is written over. Rows beyond MOST_ROWS, of a weight in bfloat16 beyond MOST_PLAIN_ROWS, are
        a launch more."""
        n = weight.shape[0] if isinstance(weight, Tensor) else weight.out_features
        out = x.new_empty(len(x), n // 2 if is_gated else n) if residual is None else residual
        if x.stride(1) != 1 or x.stride(0) % 8 or x.data_ptr() % 16:
            x = x.contiguous()
        most = MOST_PLAIN_ROWS if isinstance(weight, Tensor) else MOST_ROWS
        for some, into in zip(x.split(most), out.split(most), strict=True):
            added = None if residual is None else into
            if len(some):
                self._launch(some, weight, bias, added, into, is_gated)
        return out

    def _launch(
        self,
        x: Tensor,
        weight: Streamable,
        bias: Tensor | None,
        residual: Tensor | None,
        out: Tensor,
        is_gated: bool,
    ) -> None:
        scales = zeros = None
        if isinstance(weight, TiledWeight):
            kind, words, scales, zeros = 4, weight.words, weight.scales, weight.zeros
            n, k = weight.out_features, weight.in_features
        elif isinstance(weight, Fp8Weight):
            kind, words, scales, (n, k) = 8, weight.codes, weight.scales, weight.codes.shape
        else:
            kind, words, (n, k) = 16, weight, weight.shape
        rows = len(x)
        blocks = blocks_for(rows, kind, n, k, self._multiprocessors)
        eights = 1 if rows <= 8 else 2 if rows <= 16 else 4
        parts = torch.empty(blocks * SUMS * eights, dtype=torch.float32, device=x.device)
        self._library.call(
            "streamed", x, words, scales, zeros, bias, residual, out, parts, self._turns, rows,
            x.stride(0), out.stride(0), n, k, kind, int(is_gated), blocks, int(starts_early(x.device)),
        )  # fmt: skip

    def unpacked(self, weight: TiledWeight | Fp8Weight) -> Tensor:
        """[out, in] bfloat16: (code - zero) * scale, or code * scale."""
        n, k = weight.out_features, weight.in_features
        if isinstance(weight, Fp8Weight):
            out = torch.empty(n, k, dtype=torch.bfloat16, device=weight.codes.device)
            self._library.call("unpack8", weight.codes, weight.scales, out, n, k)
            return out
        out = torch.empty(n, k, dtype=torch.bfloat16, device=weight.words.device)
        self._library.call("unpack", weight.words, weight.scales, weight.zeros, out, n, k)
        return out


def streamed_products(device: torch.device) -> StreamedProducts | None:
    """None, and a warning, where they cannot be had: Triton's stand in."""
    try:
        return StreamedProducts(device)
    except KernelError as error:
        logger.warning("products of few rows are left to slower kernels: %s", error)
        return None
