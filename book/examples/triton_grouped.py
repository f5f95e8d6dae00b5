"""A product of matrices, and one for each expert in the same launch: see `triton-ops.md`.

Runs in Triton's interpreter: python book/examples/triton_grouped.py
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.interpreter import repair

repair()
BM, BN, BK = 16, 16, 16


@triton.jit
def grouped_product_kernel(
    x, w, ends, out, IN, OUT,
    EXPERTS: tl.constexpr, PADDED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out[row] = w[expert] @ x[row], for the expert to which the row belongs.

    x: [rows, IN], sorted by expert. w: [experts, OUT, IN]. ends: [experts], where the rows of each end.
    out: [rows, OUT]. PADDED: the power of two from EXPERTS on. A program computes BM rows of one expert
    by BN outputs, or nothing: there are as many programs as there can be tiles.
    """
    # ANCHOR: which
    tile = tl.program_id(0)
    experts = tl.arange(0, PADDED)
    end = tl.load(ends + experts, mask=experts < EXPERTS, other=0)
    begin = tl.load(ends + experts - 1, mask=(experts > 0) & (experts < EXPERTS), other=0)
    tiles = tl.cdiv(end - begin, BM)  # [PADDED], of each expert
    expert = tl.sum((tl.cumsum(tiles, 0) <= tile).to(tl.int32), 0)  # how many end before this tile
    first = tl.sum(tl.where(experts < expert, tiles, 0), 0)
    row = tl.sum(tl.where(experts == expert, begin, 0), 0) + (tile - first) * BM
    last = tl.sum(tl.where(experts == expert, end, 0), 0)
    if row >= last:  # no such tile
        return
    # ANCHOR_END: which
    w += expert.to(tl.int64) * OUT * IN
    # ANCHOR: product
    rows = (row + tl.arange(0, BM)).to(tl.int64)
    outs = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, IN, BK, num_stages=3):
        ins = k + tl.arange(0, BK)
        a_mask = (rows < last)[:, None] & (ins < IN)[None, :]
        a = tl.load(x + rows[:, None] * IN + ins[None, :], mask=a_mask, other=0.0)  # [BM, BK]
        b_mask = (ins < IN)[:, None] & (outs < OUT)[None, :]
        b = tl.load(w + outs[None, :] * IN + ins[:, None], mask=b_mask, other=0.0)  # [BK, BN]
        acc = tl.dot(a, b, acc, input_precision="ieee")
    here = (rows < last)[:, None] & (outs < OUT)[None, :]
    tl.store(out + rows[:, None] * OUT + outs[None, :], acc.to(out.dtype.element_ty), mask=here)
    # ANCHOR_END: product


def grouped_product(x: Tensor, w: Tensor, counts: list[int]) -> Tensor:
    """The product of each row with the matrix of its expert; counts: how many rows each expert has."""
    experts, outs, ins = w.shape
    ends = torch.tensor(counts, dtype=torch.int32, device=x.device).cumsum(0).to(torch.int32)
    out = x.new_empty(len(x), outs)
    most = len(x) // BM + experts  # an expert has at most one tile that is not full
    grid = (most, triton.cdiv(outs, BN))
    grouped_product_kernel[grid](
        x, w, ends, out, ins, outs, EXPERTS=experts, PADDED=triton.next_power_of_2(experts),
        BM=BM, BN=BN, BK=BK,
    )  # fmt: skip
    return out


def main() -> None:
    torch.manual_seed(0)
    for counts, ins, outs in (([3, 1, 5, 3], 16, 16), ([0, 40, 0, 17, 16], 40, 24), ([64], 32, 48)):
        x, w = torch.randn(sum(counts), ins), torch.randn(len(counts), outs, ins)
        parts = zip(x.split(counts), w, strict=True)
        expected = torch.cat([rows @ matrix.T for rows, matrix in parts])
        torch.testing.assert_close(grouped_product(x, w, counts), expected, rtol=1e-4, atol=1e-4)
        print(f"{counts} rows, {ins} inputs, {outs} outputs: as one product for each expert")


if __name__ == "__main__":
    main()
