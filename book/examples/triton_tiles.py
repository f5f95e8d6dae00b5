"""What the labs in Triton use of the language, each piece in a kernel that runs: see `triton-ops.md`.

Runs in Triton's interpreter: python book/examples/triton_tiles.py
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import triton
import triton.language as tl

from yaie.core.interpreter import repair

repair()


@triton.jit
def softmax_kernel(x, out, D, BLOCK: tl.constexpr):
    """One row. A vector of lanes, of which the last may have no number."""
    columns = tl.arange(0, BLOCK)
    # ANCHOR: masks
    values = tl.load(x + columns, mask=columns < D, other=0.0)  # for tl.sum
    scores = tl.load(x + columns, mask=columns < D, other=float("-inf"))  # for tl.max
    # ANCHOR_END: masks
    weights = tl.exp(scores - tl.max(scores, axis=0)) + 0.0 * values
    # ANCHOR: store
    tl.store(out + columns, weights, mask=columns < D)
    # ANCHOR_END: store


@triton.jit
def row_sums_kernel(x, out, num_rows, stride, D, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of each row, ROWS of them a program."""
    # ANCHOR: tile
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    columns = tl.arange(0, BLOCK)  # [BLOCK]
    mask = (rows < num_rows)[:, None] & (columns < D)[None, :]  # [ROWS, BLOCK]
    tile = tl.load(x + rows[:, None] * stride + columns[None, :], mask=mask, other=0.0)
    sums = tl.sum(tile, axis=1)  # [ROWS]
    # ANCHOR_END: tile
    tl.store(out + rows, sums, mask=rows < num_rows)


@triton.jit
def copy_rows_kernel(x, out, stride, D, BLOCK: tl.constexpr):
    """One row a program, wherever it lies."""
    columns = tl.arange(0, BLOCK)
    # ANCHOR: wide
    row = tl.program_id(0).to(tl.int64)
    at = x + row * stride  # an int64 product
    # ANCHOR_END: wide
    tl.store(out + row * D + columns, tl.load(at + columns, mask=columns < D), mask=columns < D)


@triton.jit
def scale_kernel(x, totals, out, num_tiles, TILE: tl.constexpr, STAGES: tl.constexpr):
    """Each tile over its total; a total of 0 gives 0."""
    # ANCHOR: loop
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=STAGES):
        at = tile * TILE + tl.arange(0, TILE)  # of 4 programs, number 1 has tiles 1, 5, 9, ...
        # ANCHOR_END: loop
        values, total = tl.load(x + at), tl.load(totals + at)
        # ANCHOR: where
        safe = tl.where(total > 0, total, 1.0)  # no division by 0 in any lane
        result = values / safe
        # ANCHOR_END: where
        tl.store(out + at, result)


def main() -> None:
    x = torch.randn(3, 5)
    out = torch.empty(5)
    softmax_kernel[(1,)](x[1], out, 5, BLOCK=8)
    assert torch.allclose(out / out.sum(), x[1].softmax(0), atol=1e-6)

    sums = torch.empty(3)
    row_sums_kernel[(2,)](x, sums, 3, x.stride(0), 5, ROWS=2, BLOCK=8)
    assert torch.allclose(sums, x.sum(dim=1), atol=1e-6)

    # ANCHOR: strides
    qkv = torch.arange(8 * 48.0).view(8, 48)
    k = qkv[:, 16:32].view(8, 2, 8)  # 8 tokens, 2 heads of 8
    assert k.stride() == (48, 8, 1)  # 48 numbers from token to token, not 16
    # ANCHOR_END: strides
    rows = torch.empty(8, 8)
    copy_rows_kernel[(8,)](k[:, 1], rows, k.stride(0), 8, BLOCK=8)
    assert torch.equal(rows, k[:, 1])

    totals, scaled = torch.tensor([0.0, 2.0] * 8), torch.empty(16)
    scale_kernel[(2,)](torch.ones(16), totals, scaled, 4, TILE=4, STAGES=2)
    assert scaled.tolist() == [1.0, 0.5] * 8
    print("Five kernels, all right.")


if __name__ == "__main__":
    main()
