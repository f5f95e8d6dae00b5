"""Attention of a few rows over a block table, piece by piece: see `triton-paged-attention.md`.

Runs in Triton's interpreter: python book/examples/triton_paged_tiles.py
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import triton
import triton.language as tl

from yaie.core.interpreter import repair

repair()
ROWS, TILE, SLOT, D = 16, 16, 16, 16


@triton.jit
def few_rows_kernel(
    q, key_blocks, table, out, key_stride, end,
    D: tl.constexpr, SLOT: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr,
    TILE: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """ROWS queries over `end` keys that fit one tile; the keys are the values as well."""
    start = 0
    dims = tl.arange(0, DIMS)
    at_q = tl.arange(0, ROWS)[:, None] * D + dims[None, :]
    q = tl.load(q + at_q, mask=(dims < D)[None, :], other=0.0)
    # ANCHOR: gather
    keys = start + tl.arange(0, TILE)  # [TILE] positions
    blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0).to(tl.int64)
    at = blocks * key_stride + keys % BLOCK_SIZE * SLOT  # [TILE] where each key begins
    mask = (keys < end)[:, None] & (dims < D)[None, :]  # [TILE, DIMS]
    k = tl.load(key_blocks + at[:, None] + dims[None, :], mask=mask, other=0.0)
    # ANCHOR_END: gather
    v = k
    visible = (keys < end)[None, :]
    acc = tl.zeros([ROWS, DIMS], tl.float32)
    # ANCHOR: dot
    products = tl.dot(q, tl.trans(k), input_precision="ieee")  # [ROWS, TILE]
    # ANCHOR_END: dot
    scores = products * 1.4426950408889634
    # ANCHOR: hide
    scores = tl.where(visible, scores, float("-inf"))
    top = tl.max(scores, axis=1)  # [ROWS]
    base = tl.where(top > float("-inf"), top, 0.0)
    weights = tl.exp2(scores - base[:, None])  # 0 where hidden, never NaN
    # ANCHOR_END: hide
    # ANCHOR: add
    acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")  # [ROWS, DIMS], added to acc
    # ANCHOR_END: add
    total = tl.sum(weights, axis=1)
    safe = tl.where(total > 0, total, 1.0)
    tl.store(out + at_q, acc / safe[:, None], mask=(dims < D)[None, :])


def main() -> None:
    pool = torch.randn(6, 4, SLOT)  # 6 blocks of 4 slots
    table = torch.tensor([5, 2, 0], dtype=torch.int32)
    q, out = torch.randn(ROWS, D), torch.empty(ROWS, D)
    for end in (10, 0):
        few_rows_kernel[(1,)](
            q, pool, table, out, pool.stride(0), end,
            D=D, SLOT=SLOT, BLOCK_SIZE=4, ROWS=ROWS, TILE=TILE, DIMS=D,
        )  # fmt: skip
        keys = pool[table.long()].flatten(0, 1)[:end]
        right = (q @ keys.T).softmax(dim=1) @ keys if end else torch.zeros(ROWS, D)
        assert torch.allclose(out, right, atol=1e-5)
    print("10 keys and none: both right.")


if __name__ == "__main__":
    main()
