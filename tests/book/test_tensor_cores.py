"""The listing with `mma.sync`: right by the chapter's table of lanes, and compiled where nvcc is."""

from pathlib import Path

import pytest
import torch

from book.tools.mdbook import ROOT
from tests.book.test_hand_tables import table
from yaie.cuda import CudaLibrary
from yaie.cuda.compiler import build
from yaie.cuda.nvcc import find_host_compiler, find_nvcc

FOLDER = ROOT / "book/examples/mma"
SHAPES = ((16, 8, 16), (32, 24, 64), (48, 16, 128))


def held(tile: str, lane: int) -> list[tuple[int, int]]:
    """Row and column of each number of a tile that a lane has, as the chapter's table says."""
    [row] = [row for row in table("cuda-flash-attention", "tile") if row[0] == tile]
    names = {"g": lane // 4, "2t": 2 * (lane % 4)}
    rows, columns = (
        [
            sum(names[one] if one in names else int(one) for one in place.split(" + "))
            for place in cell.replace("$", "").split(", ")
        ]
        for cell in row[2:]
    )
    assert len(rows) * len(columns) == int(row[1])
    return [(i, k) for i in rows for k in columns]


@pytest.mark.parametrize(("tile", "shape"), [("A", (16, 16)), ("B", (16, 8)), ("C", (16, 8))])
def test_the_lanes_of_a_warp_hold_each_number_once(tile: str, shape: tuple[int, int]) -> None:
    places = [place for lane in range(32) for place in held(tile, lane)]
    assert sorted(places) == [(i, k) for i in range(shape[0]) for k in range(shape[1])]


@pytest.mark.parametrize(("queries", "keys", "d"), SHAPES)
def test_it_computes_the_scores(queries: int, keys: int, d: int) -> None:
    torch.manual_seed(d)
    q, k = (torch.randn(rows, d).bfloat16() for rows in (queries, keys))
    scores = torch.full((queries, keys), torch.nan)
    CudaLibrary(FOLDER).call("score", q, k, scores, queries, keys, d)
    torch.testing.assert_close(scores.double(), q.double() @ k.double().T, rtol=1e-5, atol=1e-4)


def test_a_lane_stores_what_the_table_gives_it() -> None:
    """With one query and one key that are not zero, one lane has a score to store."""
    for row, column in ((0, 0), (3, 2), (11, 3), (15, 7)):
        q, k, scores = torch.zeros(16, 16), torch.zeros(8, 16), torch.full((16, 8), torch.nan)
        q[row], k[column] = torch.arange(16.0), 1.0
        CudaLibrary(FOLDER).call("score", q.bfloat16(), k.bfloat16(), scores, 16, 8, 16)
        expected = torch.zeros(16, 8)
        expected[row, column] = 120.0
        assert torch.equal(scores, expected)
        assert [lane for lane in range(32) if (row, column) in held("C", lane)] == [
            4 * (row % 8) + column // 2
        ]


@pytest.mark.skipif(
    find_nvcc() is None or find_host_compiler() is None,
    reason="needs nvcc and a C++ compiler, and one of them is not installed",
)
def test_nvcc_compiles_the_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    assert build(FOLDER, ("80", "90")).path.stat().st_size > 0
