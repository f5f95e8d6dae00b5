"""The listing of a grouped product: a row by the matrix of its expert, in tiles as the page counts."""

import importlib.util
from types import ModuleType

import pytest
import torch

from book.tools.mdbook import ROOT
from tests.book.test_hand_tables import _words, numbers, table


@pytest.fixture(scope="module")
def listing() -> ModuleType:
    path = ROOT / "book/examples/triton_grouped.py"
    spec = importlib.util.spec_from_file_location("triton_grouped", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("counts", [[3, 1, 5, 3], [0, 20, 0], [16, 17], [5]])
def test_each_row_meets_the_matrix_of_its_expert(listing: ModuleType, counts: list[int]) -> None:
    torch.manual_seed(sum(counts))
    x, w = torch.randn(sum(counts), 24), torch.randn(len(counts), 20, 24)
    parts = zip(x.split(counts), w, strict=True)
    expected = torch.cat([rows @ matrix.T for rows, matrix in parts])
    found = listing.grouped_product(x, w, counts)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_tile_that_the_chapter_finds_by_hand() -> None:
    rows = table("experts", "expert", "tokens")
    counts, tiles = ([numbers(row[at])[0] for row in rows] for at in (2, 4))
    begins = [sum(counts[:expert]) for expert in range(len(counts))]
    ends = [sum(tiles[: expert + 1]) for expert in range(len(tiles))]
    assert (counts, tiles, ends) == ([3, 1, 5, 3], [1, 1, 2, 1], [1, 2, 4, 5])
    expert = sum(end <= 3 for end in ends)
    first = sum(tiles[:expert])
    begin = begins[expert] + (3 - first) * 4
    assert (expert, begin, begins[expert] + counts[expert] - begin) == (2, 8, 1)
    text = _words("triton-ops")
    assert "in tiles of 4: they have 1, 1, 2 and 1 tiles, which end at 1, 2, 4 and 5" in text
    assert "its rows begin at 4 + (3 − 2) · 4 = 8, and there is one" in text
    for outs, operations in ((128, 64), (256, 85)):
        assert round(128 * outs / (128 + outs)) == operations
        assert f"{operations}" in text
