"""Lab 20's reference where its suite does not go: the naive sibling, and a layer cut over ranks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.tensor_parallel import Ring, RowParallel, qkv_rows, share, share_heads
from solutions.tensor_parallel.naive import EachToAll
from yaie.core.threaded_ranks import ThreadLink, Wire


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_ring_and_its_naive_sibling_agree(size: int) -> None:
    torch.manual_seed(size)
    given = torch.randn(size, 3, 7)
    wires = Wire(size), Wire(size)
    for name in ("all_reduce", "all_gather"):
        ring = wires[0].run(lambda link, n=name: getattr(Ring(link), n)(given[link.rank].clone()))
        each = wires[1].run(lambda link, n=name: getattr(EachToAll(link), n)(given[link.rank]))
        for a, b in zip(ring, each, strict=True):
            assert torch.allclose(a, b, atol=1e-6)
        assert all(torch.equal(x, ring[0]) for x in ring)
        assert all(torch.equal(x, each[0]) for x in each)


def attention(x: Tensor, qkv: Tensor, heads: int, kv_heads: int, dim: int) -> Tensor:
    """Causal attention of rows x [T, hidden], by stacked weights: [T, heads * dim]."""
    q, k, v = (x @ qkv.t()).split([heads * dim, kv_heads * dim, kv_heads * dim], dim=1)
    split = [part.unflatten(1, (-1, dim)).transpose(0, 1) for part in (q, k, v)]
    out = F.scaled_dot_product_attention(*split, is_causal=True, enable_gqa=True)
    return out.transpose(0, 1).flatten(1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 4), (8, 2), (4, 4), (4, 1)])
@pytest.mark.parametrize("size", [2, 4])
def test_a_layer_cut_over_ranks_computes_what_it_did_before(
    heads: int, kv_heads: int, size: int
) -> None:
    """Attention by the rank's heads, its output split by rows; then a gated product and its way back."""
    torch.manual_seed(heads * kv_heads)
    dim, hidden, wide = 4, 16, 22
    x = torch.randn(5, hidden, dtype=torch.float64)

    def weight(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, dtype=torch.float64) / columns**0.5

    qkv, output = weight((heads + 2 * kv_heads) * dim, hidden), weight(hidden, heads * dim)
    gate, up, down = weight(wide, hidden), weight(wide, hidden), weight(hidden, wide)
    bias = torch.randn(hidden, dtype=torch.float64)
    y = x + attention(x, qkv, heads, kv_heads, dim) @ output.t() + bias
    expected = y + (F.silu(y @ gate.t()) * (y @ up.t())) @ down.t()

    def layer(link: ThreadLink) -> Tensor:
        group, rank = Ring(link), link.rank
        rows = [torch.tensor(part) for part in qkv_rows(heads, kv_heads, dim, rank, size)]
        queries, keys = share_heads(heads, kv_heads, rank, size)
        mine = attention(x, qkv[torch.cat(rows)], len(queries), len(keys), dim)
        y = x + RowParallel(lambda z: z @ output[:, rows[0]].t(), bias, group)(mine)
        held = torch.tensor(share(wide, rank, size))
        gated = F.silu(y @ gate[held].t()) * (y @ up[held].t())
        return y + RowParallel(lambda z: z @ down[:, held].t(), None, group)(gated)

    for got in Wire(size).run(layer):
        assert torch.allclose(got, expected)
