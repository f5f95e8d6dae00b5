"""Products of few rows on weights of four bits: y [rows, N] = x [rows, K] @ dequantize(weight).T.

Lab 19's kernel is the naive sibling. This one differs where time goes: a program has a part of K, so
that a product of few outputs still fills the GPU, and codes become floating-point numbers two at a time,
by writing them into the mantissa of a constant (Frantar et al. 2024, "MARLIN"; the trick is of Kim et
al. 2022). An int32 holds eight inputs of one output: x is split into eight parts accordingly, and each
takes a product on tensor cores. No input is moved within a word.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from yaie.backends.early import early_launch, starts_early
from yaie.backends.gemm.kernels import finish, weight_rows
from yaie.core.quantized import Int4Weight, LoadedInt4Weight

MOST_ROWS = 32
"""Of x: with more, dequantizing in each program is no longer hidden behind the weights' bytes."""
BLOCK_N = 128
STEP = 128
"""Inputs of a turn: sixteen words, the least that `tl.dot` takes."""


def _to_floats(kind: str, magic: int, number: int) -> str:
    """PTX: of two int64 with a word, a scale and a zero each, the `number`th numbers of the two words.

    In `magic`, a floating-point number, the last four bits of the mantissa count whole numbers: or-ing
    a code into it adds the code. Zeros come with it added.
    """
    half = "0x5410" if number < 4 else "0x7632"
    return f"""{{
        .reg .b32 w0, w1, s0, s1, codes, scale, zero;
        mov.b64 {{w0, s0}}, $1;
        mov.b64 {{w1, s1}}, $2;
        prmt.b32 codes, w0, w1, {half};
        shr.u32 codes, codes, {4 * (number % 4)};
        lop3.b32 codes, codes, 0x000F000F, {magic:#x}{magic:04x}, 0xEA;
        prmt.b32 scale, s0, s1, 0x5410;
        prmt.b32 zero, s0, s1, 0x7632;
        sub.rn.{kind} codes, codes, zero;
        mul.rn.{kind} $0, codes, scale;
    }}"""


MAGIC = {torch.bfloat16: 0x4300, torch.float16: 0x6400}
"""128 and 1024."""
BFLOAT16 = tl.constexpr(tuple(_to_floats("bf16x2", 0x4300, number) for number in range(8)))
FLOAT16 = tl.constexpr(tuple(_to_floats("f16x2", 0x6400, number) for number in range(8)))


@triton.jit
def parts_of(x, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """x [ROWS, 8 * WORDS] as eight tensors [ROWS, WORDS]: each word's first input, its second, ..."""
    even, odd = tl.split(tl.reshape(x, [ROWS, WORDS, 2, 2, 2]))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    x0, x4 = tl.split(a)
    x2, x6 = tl.split(c)
    x1, x5 = tl.split(b)
    x3, x7 = tl.split(d)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def packed_words(
    qweight, scales, qzeros, word, columns, N, K: tl.constexpr, GROUP: tl.constexpr,
    MAGIC: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """int64 [words, columns]: from the lowest bit on a word, its scale and its zero. 0 where none is.

    One number for the three: moving it to the thread that `tl.dot` needs it in takes one exchange.
    """
    mask = (word < K // 8)[:, None] & (columns < N)[None, :]
    words = tl.load(qweight + word.to(tl.int64)[:, None] * N + columns[None, :], mask=mask, other=0)
    group = word // (GROUP // 8)
    at = group.to(tl.int64)[:, None] * N + columns[None, :]
    scale = tl.load(scales + at, mask=mask, other=0)
    packed = (words.to(tl.int64) & 0xFFFFFFFF) | ((scale.to(tl.int64) & 0xFFFF) << 32)
    if EVEN:
        packed |= (MAGIC + 8) << 48
    else:
        at = group[:, None] * (N // 8) + columns[None, :] // 8
        zeros = tl.load(qzeros + at, mask=mask, other=0) >> (columns % 8 * 4)[None, :]
        packed |= ((zeros & 15).to(tl.int64) | MAGIC) << 48
    return packed


@triton.jit
def numbers_of(packed, NUMBER: tl.constexpr, dtype: tl.constexpr, FAST: tl.constexpr):
    """(code - zero) * scale for the codes that stand at NUMBER in the words of `packed_words`."""
    if not FAST:
        codes = ((packed >> (4 * NUMBER)) & 15).to(tl.float32)
        zero = ((packed >> 48) & 15).to(tl.float32)
        scale = ((packed >> 32) & 0xFFFF).to(tl.int16).to(dtype, bitcast=True)
        numbers = ((codes - zero).to(dtype) * scale).to(dtype)
    elif dtype == tl.bfloat16:
        numbers = tl.inline_asm_elementwise(
            BFLOAT16[NUMBER], "=r,l,l", [packed], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        numbers = tl.inline_asm_elementwise(
            FLOAT16[NUMBER], "=r,l,l", [packed], dtype=tl.float16, is_pure=True, pack=2
        )
    return numbers


@triton.jit(do_not_specialize=["rows"])
def packed_kernel(
    x, qweight, scales, qzeros, bias, residual, out, sums_of_parts, turns, rows, N, x_stride,
    residual_stride, out_stride, K: tl.constexpr, GROUP: tl.constexpr, PART: tl.constexpr,
    PARTS: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr,
    ADD: tl.constexpr, GATED: tl.constexpr, EARLY: tl.constexpr, STAGES: tl.constexpr,
    MAGIC: tl.constexpr, EVEN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Program (tile, part): BLOCK_N outputs, PART inputs. The last program of a tile adds up.

    scales: the bits of numbers of the dtype of x, int16. EVEN: every zero is 8.
    sums_of_parts: [tiles, PARTS, BLOCK_N, ROWS] float32. turns: [tiles] int32 zeros, and zeros again
    afterwards.
    """
    STEP: tl.constexpr = 128
    WORDS: tl.constexpr = STEP // 8
    dtype: tl.constexpr = x.dtype.element_ty
    tile, part = tl.program_id(0), tl.program_id(1)
    columns = weight_rows(tile, N, BLOCK_N, GATED)
    row, ks, ws = tl.arange(0, ROWS), tl.arange(0, STEP), tl.arange(0, WORDS)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    sums = tl.zeros([ROWS, BLOCK_N], tl.float32)
    begin = part * PART
    for k in tl.range(begin, min(begin + PART, K), STEP, num_stages=STAGES):
        mask = (row < rows)[:, None] & (k + ks < K)[None, :]
        inputs = tl.load(x + row[:, None] * x_stride + (k + ks)[None, :], mask=mask, other=0.0)
        packed = packed_words(
            qweight, scales, qzeros, k // 8 + ws, columns, N, K, GROUP, MAGIC, EVEN
        )
        x0, x1, x2, x3, x4, x5, x6, x7 = parts_of(inputs, ROWS, WORDS)
        sums = tl.dot(x0, numbers_of(packed, 0, dtype, FAST), sums)
        sums = tl.dot(x1, numbers_of(packed, 1, dtype, FAST), sums)
        sums = tl.dot(x2, numbers_of(packed, 2, dtype, FAST), sums)
        sums = tl.dot(x3, numbers_of(packed, 3, dtype, FAST), sums)
        sums = tl.dot(x4, numbers_of(packed, 4, dtype, FAST), sums)
        sums = tl.dot(x5, numbers_of(packed, 5, dtype, FAST), sums)
        sums = tl.dot(x6, numbers_of(packed, 6, dtype, FAST), sums)
        sums = tl.dot(x7, numbers_of(packed, 7, dtype, FAST), sums)
    sums = tl.trans(sums)
    if PARTS > 1:
        local = tl.arange(0, BLOCK_N)[:, None] * ROWS + row[None, :]
        mine = sums_of_parts + tile.to(tl.int64) * (PARTS * BLOCK_N * ROWS) + local
        tl.store(mine + part * (BLOCK_N * ROWS), sums)
        tl.debug_barrier()
        if tl.atomic_add(turns + tile, 1) == PARTS - 1:
            sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
            for other in range(PARTS):  # in the same order, whichever program came last
                sums += tl.load(mine + other * (BLOCK_N * ROWS), cache_modifier=".cg")
            tl.store(turns + tile, 0)
            finish(
                sums, tile, columns, bias, residual, out, rows, N, residual_stride, out_stride,
                BLOCK_N, ROWS, BIAS, ADD, GATED,
            )  # fmt: skip
    else:
        finish(
            sums, tile, columns, bias, residual, out, rows, N, residual_stride, out_stride,
            BLOCK_N, ROWS, BIAS, ADD, GATED,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedTile:
    """block_n: outputs of a program. parts: of the inputs."""

    block_n: int
    parts: int
    warps: int
    stages: int


@lru_cache(maxsize=256)
def packed_tile_for(rows: int, n: int, k: int) -> PackedTile:
    """For x [rows, k] and a weight [n, k], as measured on an H200: more programs than it holds at once,
    or two for each of 132 multiprocessors with more rows, and four turns at least for each."""
    tiles = triton.cdiv(n, BLOCK_N)
    parts = triton.next_power_of_2(triton.cdiv(512, tiles)) if rows <= 16 else 2 * 132 // tiles
    return PackedTile(BLOCK_N, max(1, min(parts, k // (4 * STEP))), warps=4, stages=3)


def scales_for(weight: Int4Weight, dtype: torch.dtype) -> Tensor:
    """The bits of the scales, rounded to `dtype`: int16. They are kept with a loaded weight."""
    if isinstance(weight, LoadedInt4Weight):
        if dtype not in weight.scales_by_dtype:
            weight.scales_by_dtype[dtype] = weight.scales.to(dtype).view(torch.int16)
        return weight.scales_by_dtype[dtype]
    return weight.scales.to(dtype).view(torch.int16)


class PackedFewRows:
    """The launches. One for each device: programs that share a tile count themselves in `_turns`."""

    def __init__(self) -> None:
        self._turns: dict[torch.device, Tensor] = {}

    def takes(self, x: Tensor) -> bool:
        """Whether so many rows of this dtype are faster so than by lab 19's kernel."""
        return x.dtype in (torch.float16, torch.bfloat16) and 1 <= len(x) <= MOST_ROWS

    def multiply(
        self,
        x: Tensor,
        weight: Int4Weight,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        is_gated: bool = False,
        tile: PackedTile | None = None,
    ) -> Tensor:
        """x @ dequantize(weight).T + bias: [rows, out], gated [rows, out / 2], or added to residual."""
        (rows, k), n = x.shape, weight.out_features
        early = starts_early(x.device)
        tile = tile or packed_tile_for(rows, n, k)
        padded = max(16, triton.next_power_of_2(rows))
        tiles = triton.cdiv(n, tile.block_n)
        part = triton.cdiv(triton.cdiv(k, tile.parts), STEP) * STEP
        parts = triton.cdiv(k, part)
        size = tiles * parts * tile.block_n * padded if parts > 1 else 1
        sums = torch.empty(size, dtype=torch.float32, device=x.device)
        out = x.new_empty(rows, n // 2 if is_gated else n) if residual is None else residual
        packed_kernel[(tiles, parts)](
            x, weight.qweight, scales_for(weight, x.dtype), weight.qzeros,
            x if bias is None else bias, out, out, sums, self._counters(x.device, tiles), rows, n,
            x.stride(0), out.stride(0), out.stride(0), K=k, GROUP=weight.group_size, PART=part,
            PARTS=parts, BLOCK_N=tile.block_n, ROWS=padded,
            BIAS=bias is not None, ADD=residual is not None, GATED=is_gated, EARLY=early,
            STAGES=tile.stages, MAGIC=MAGIC[x.dtype], EVEN=getattr(weight, "is_even", False),
            FAST=x.is_cuda, num_warps=tile.warps, **early_launch(early),
        )  # fmt: skip
        return out

    def _counters(self, device: torch.device, tiles: int) -> Tensor:
        turns = self._turns.get(device)
        if turns is None or len(turns) < tiles:
            self._turns[device] = turns = torch.zeros(
                max(tiles, 8192), dtype=torch.int32, device=device
            )
        return turns
