"""Weights of four bits in the order of tensor cores, for the products of `streamed.py`.

`packed.py` is the sibling in Triton, for GPUs without nvcc and what does not fit here. There each word
has to be moved to the threads whose part of a product it is; here a word lies where they load it from.

Outputs are taken 16 at a time (a tile), inputs 64 (a chunk) in two groups of 32. Lane 4 * g + t of a
warp holds, of each group, two words, with s = 0 and 1. A word has outputs g + 8 * r of its tile, r = 0
and 1, and inputs 8 * t + 4 * s + 2 * h + e of its group; the code of (r, h, e) stands in bits
4 * (r + 2 * h + 4 * e). That is an operand of mma.m16n8k16, with a group's inputs in another order, in
which x is read as well.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight

TILE, CHUNK, GROUP = 16, 64, 32
MOST_TILED_ROWS = 16
"""Of few_rows.cu, which is faster up to there than streamed.cu."""
WARPS = 8


@dataclass(frozen=True, slots=True)
class TiledWeight:
    """A weight [out, in] in four bits, as `few_rows.cu` takes it.

    words: [out / 16, in / 64, 32, 4] int32; the last two are lane and 2 * group + s.
    scales: [out / 16, in / 64, 8, 2, 2] float16: lane // 4, group, r.
    zeros: the same in uint8, or None if each is 8.
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor | None

    @property
    def out_features(self) -> int:
        return TILE * len(self.words)

    @property
    def in_features(self) -> int:
        return CHUNK * self.words.shape[1]

    @property
    def nbytes(self) -> int:
        return (
            self.words.nbytes
            + self.scales.nbytes
            + (0 if self.zeros is None else self.zeros.nbytes)
        )


def tileable(weight: Int4Weight) -> bool:
    """Whether it can be arranged: whole tiles and chunks, and no group that ends within 32 inputs."""
    sizes = weight.out_features % (2 * TILE), weight.in_features % CHUNK, weight.group_size % GROUP
    return not any(sizes)


def tiled(weight: Int4Weight) -> TiledWeight:
    """The same weight in this order. It is `tileable`."""
    k, n = weight.in_features, weight.out_features
    # [chunk, group, t, tile, r, g]
    given = weight.qweight.view(k // CHUNK, 2, 4, n // TILE, 2, 8)
    words = torch.zeros(n // TILE, k // CHUNK, 8, 4, 2, 2, dtype=torch.int32, device=given.device)
    for r in range(2):
        for s in range(2):
            source = given[:, :, :, :, r].permute(3, 0, 4, 2, 1)  # [tile, chunk, g, t, group]
            for h in range(2):
                for e in range(2):
                    code = (source >> (16 * s + 8 * h + 4 * e)) & 15
                    words[..., s] |= code << (4 * (r + 2 * h + 4 * e))
    zeros = None
    if not getattr(weight, "is_even", False):
        shifts = 4 * torch.arange(8, dtype=torch.int32, device=given.device)
        each = ((weight.qzeros[..., None] >> shifts) & 15).flatten(1).to(torch.uint8)
        zeros = _by_tile(each, weight.group_size)
    return TiledWeight(
        words.view(n // TILE, k // CHUNK, 32, 4), _by_tile(weight.scales, weight.group_size), zeros
    )


def _by_tile(of_groups: Tensor, group_size: int) -> Tensor:
    """[groups, out] as [tile, chunk, g, group of 32, r]."""
    per_32 = of_groups.repeat_interleave(group_size // GROUP, dim=0)
    groups, n = per_32.shape
    return per_32.view(groups // 2, 2, n // TILE, 2, 8).permute(2, 0, 4, 1, 3).contiguous()


@lru_cache(maxsize=256)
def parts_for(rows: int, n: int, k: int) -> int:
    """Parts that the inputs of a product are cut into by few_rows.cu: as many blocks as 132
    multiprocessors hold at once, three each with up to 8 rows, two with 16. On an H100 the four products
    of an 8B layer were fastest so, among 1 to 8 parts. Each warp keeps two turns."""
    at_once = 3 if rows <= 8 else 2
    pairs, turns = n // (2 * TILE), k // (CHUNK * WARPS)
    return max(1, min(at_once * 132 // pairs, turns // 2))
