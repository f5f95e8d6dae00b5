"""Weights of four bits in the order of tensor cores: the order, and how products are cut."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4
from yaie.backends.gemm.tiled import (
    TiledWeight,
    parts_for,
    tileable,
    tiled,
)
from yaie.core.quantized import LoadedInt4Weight


def made(n: int, k: int, group_size: int, symmetric: bool) -> LoadedInt4Weight:
    g = torch.Generator().manual_seed(n + k)
    weight = Int4().quantize(
        torch.randn(n, k, generator=g) / k**0.5, group_size, symmetric=symmetric
    )
    parts = weight.qweight, weight.scales, weight.qzeros
    return LoadedInt4Weight(*parts, group_size, is_even=symmetric)


def by_the_description(weight: TiledWeight) -> Tensor:
    """[out, in] float32, number by number as the module says where each stands."""
    out = torch.empty(weight.out_features, weight.in_features)
    tiles, chunks = weight.words.shape[:2]
    words = weight.words.view(tiles, chunks, 8, 4, 2, 2)  # g, t, group, s
    for r in range(2):
        for s in range(2):
            for h in range(2):
                for e in range(2):
                    codes = (words[..., s] >> (4 * (r + 2 * h + 4 * e))) & 15
                    zeros = 8 if weight.zeros is None else weight.zeros[:, :, :, None, :, r].int()
                    values = (codes - zeros) * weight.scales[:, :, :, None, :, r].float()
                    view = out.view(
                        tiles, 2, 8, chunks, 2, 4, 2, 2, 2
                    )  # r, g, chunk, group, t, s, h, e
                    view[:, r, :, :, :, :, s, h, e] = values.permute(0, 2, 1, 4, 3)
    return out


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("group_size", [32, 64, 256])
def test_every_code_is_where_it_is_said_to_be(group_size: int, symmetric: bool) -> None:
    weight = made(96, 256, group_size, symmetric)
    assert tileable(weight)
    found = tiled(weight)
    assert (found.out_features, found.in_features) == (96, 256)
    assert (found.zeros is None) == symmetric
    assert torch.equal(by_the_description(found), Int4().dequantize(weight))


def test_what_does_not_fit_is_left_to_others() -> None:
    assert not tileable(made(72, 256, 32, True))
    assert not tileable(made(96, 224, 32, True))
    assert not tileable(made(96, 256, 16, True))


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("n", [64, 4096, 28672])
@pytest.mark.parametrize("k", [64, 512, 4096, 14336])
def test_every_warp_keeps_two_turns(rows: int, n: int, k: int) -> None:
    parts = parts_for(rows, n, k)
    assert parts == 1 or k >= parts * 2 * 8 * 64


def test_an_8b_layer_is_cut_as_measured() -> None:
    shapes = (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)
    assert [[parts_for(rows, *shape) for shape in shapes] for rows in (8, 16)] == [
        [2, 3, 1, 3],
        [1, 2, 1, 2],
    ]
