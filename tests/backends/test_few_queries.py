"""Attention of small chunks with split keys, against attention in float64."""

import pytest
import torch
from torch import Tensor

from tests.marks import nightly_but
from yaie.backends import few_queries
from yaie.backends.attention_plan import Chunks
from yaie.core.batch import AttentionSpec

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK, SCALE = 16, 0.2


class Case:
    """Chunks of (queries, keys), with `padding` chunks and rows without queries behind them."""

    def __init__(
        self, shapes: list[tuple[int, int]], heads: int, kv_heads: int, d: int, padding: int = 0
    ) -> None:
        g = torch.Generator().manual_seed(len(shapes) + heads + d)
        width = max(-(-keys // BLOCK) for _, keys in shapes) + 1
        order = torch.randperm(len(shapes) * width, generator=g).view(len(shapes), width)
        self.tables = torch.cat([order, torch.zeros(padding, width, dtype=torch.int64)]).int()
        queries, keys = zip(*shapes, strict=True)
        ends = torch.tensor([0, *queries]).cumsum(0)
        self.starts = torch.cat([ends, ends[-1:].expand(padding)]).int().to(DEVICE)
        self.lens = torch.tensor([*keys, *[0] * padding], dtype=torch.int32, device=DEVICE)
        self.rows = int(ends[-1])

        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g).to(DEVICE, torch.float16)

        self.q = numbers(self.rows + padding, heads + 1, d)[:, :heads]
        self.keys, self.values = (numbers(order.numel(), BLOCK, kv_heads, d) for _ in range(2))
        self.shapes = shapes
        self.chunks = Chunks(
            0, len(self.q), self.starts, self.lens, self.tables.to(DEVICE), max(queries)
        )

    def attend(self) -> Tensor:
        spec = AttentionSpec(SCALE)
        assert few_queries.takes(self.q, self.chunks, spec)
        return few_queries.attend(self.q, self.keys, self.values, self.chunks, spec)[: self.rows]

    def expected(self) -> Tensor:
        group, results, row = self.q.shape[1] // self.keys.shape[2], [], 0
        for (queries, keys), table in zip(self.shapes, self.tables, strict=False):
            k, v = (
                one[table.long()].flatten(0, 1)[:keys].double().repeat_interleave(group, dim=1)
                for one in (self.keys, self.values)
            )
            q = self.q[row : row + queries].double()
            scores = torch.einsum("qhd,khd->hqk", q, k) * SCALE
            seen = torch.ones(queries, keys, device=DEVICE).tril(keys - queries).bool()
            weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=2)
            results.append(torch.einsum("hqk,khd->qhd", weights, v))
            row += queries
        return torch.cat(results)


@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 5)],
        [(5, 200)],
        [(1, 1), (5, 70), (2, 64)],
        [(19, 150), (3, 3)],
        [(8, 300), (8, 8), (9, 40)],
    ],
    ids=str,
)
@pytest.mark.parametrize(("heads", "kv_heads", "d"), [(4, 1, 32), (2, 2, 24), (6, 2, 16)])
@pytest.mark.parametrize("padding", nightly_but([3], [0, 3]))
def test_is_attention(
    shapes: list[tuple[int, int]], heads: int, kv_heads: int, d: int, padding: int
) -> None:
    case = Case(shapes, heads, kv_heads, d, padding)
    torch.testing.assert_close(case.attend().double(), case.expected(), rtol=4e-3, atol=2e-3)


def test_keys_that_no_query_sees_are_not_read() -> None:
    case = Case([(3, 37)], 2, 1, 16)
    expected = case.attend()
    last = case.tables[0, 2]
    case.keys[last, 5:] = case.values[last, 5:] = float("nan")  # behind position 37
    assert torch.equal(case.attend(), expected)


def test_splits_fill_the_places_once() -> None:
    assert few_queries.splits_for(8, 8, 2048, 396) == 32  # a tile each
    assert few_queries.splits_for(8, 8, 8192, 396) == 49
    assert few_queries.splits_for(64, 8, 8192, 396) == 6
    assert few_queries.splits_for(64, 8, 64, 12) == 1


def test_what_it_leaves_to_others() -> None:
    case = Case([(5, 9)], 2, 1, 16)
    for spec in (
        AttentionSpec(SCALE, window=4),
        AttentionSpec(SCALE, softcap=2.0),
        AttentionSpec(SCALE, sinks=torch.zeros(2)),
    ):
        assert not few_queries.takes(case.q, case.chunks, spec)
    assert not few_queries.takes(case.q.float(), case.chunks, AttentionSpec(SCALE))
    many = Case([(few_queries.MOST_TOKENS + 1, 80)], 2, 1, 16)
    assert not few_queries.takes(many.q, many.chunks, AttentionSpec(SCALE))
