"""Grids that `yaie quantize` rounds to: never worse than the plain ones, and most often better."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4
from yaie.models.rounding import SHARES, FittedGrids

INT4 = Int4()


def errors(group: Tensor, grid: tuple[Tensor, Tensor]) -> Tensor:
    scales, zeros = grid
    codes = INT4.codes(group, scales, zeros)
    return ((codes - zeros[:, None]) * scales[:, None].float() - group).square().sum(dim=1)


@pytest.mark.parametrize("symmetric", [True, False])
def test_each_output_has_the_best_of_all_ranges(symmetric: bool) -> None:
    group = torch.randn(200, 32)
    found = errors(group, FittedGrids(INT4).grid(group, symmetric=symmetric))
    every = [errors(group, INT4.grid(share * group, symmetric=symmetric)) for share in (1, *SHARES)]
    assert torch.equal(found, torch.stack(every).amin(dim=0))
    assert found.sum() < 0.95 * every[0].sum()


def test_a_group_on_its_own_grid_keeps_it() -> None:
    group = torch.arange(-8.0, 8.0).repeat(2)[None] / 16
    scales, zeros = FittedGrids(INT4).grid(group, symmetric=False)
    assert (scales, zeros) == INT4.grid(group, symmetric=False)
    assert errors(group, (scales, zeros)) == 0


def test_a_group_of_zeros_is_rounded() -> None:
    group = torch.zeros(3, 32)
    assert not errors(group, FittedGrids(INT4).grid(group, symmetric=False)).any()
