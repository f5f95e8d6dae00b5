"""Sums through the memory of GPUs: the same bits on all, in graphs too, and NCCL's for the rest."""

from pathlib import Path
from typing import Any

import pytest
import torch

from yaie.core.errors import RankError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
SIZES = (4, 1000, 4096, 8 * 4096, 99_996, 1 << 20, 1 << 21)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CALLS, REPLAYS = 5, 4
WIDTHS = (4096, 100 * 4096)
"""Summed in one shot, and in two."""


def rank_of(rank: int, ranks: int, folder: str) -> None:
    """What each process does, and expects."""
    import torch.distributed as dist

    from yaie.worker.parallel.groups import LibraryCollectives, Limit, nccl_group
    from yaie.worker.parallel.peer_memory import MOST_BYTES, PeerCollectives, share_a_host

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    store = dist.FileStore(f"{folder}/store", ranks)
    library = LibraryCollectives(nccl_group(dist.PrefixStore("nccl", store), rank, ranks), Limit())
    assert share_a_host(library, device)
    peers = PeerCollectives(library, dist.PrefixStore("peers", store), device)
    for dtype in DTYPES:
        for size in SIZES:
            expect_sums(peers, library, size, dtype, device)
    assert not peers.takes(torch.empty(MOST_BYTES + 8, dtype=torch.uint8, device=device))
    assert not peers.takes(torch.empty(3, dtype=torch.bfloat16, device=device))
    odd = torch.ones(3, dtype=torch.bfloat16, device=device)
    assert peers.all_reduce(odd).tolist() == [ranks] * 3
    for width in WIDTHS:
        expect_replays(peers, device, width)


def expect_sums(
    peers: Any, library: Any, size: int, dtype: torch.dtype, device: torch.device
) -> None:
    draws = torch.Generator().manual_seed(size)
    given = torch.randn(peers.size, size, generator=draws).to(dtype)
    expected = given[0].float()
    for row in given[1:]:
        expected = expected + row.float()
    for _ in range(3):  # halves of the buffer take turns
        found = peers.all_reduce(given[peers.rank].to(device, copy=True))
        assert torch.equal(found.cpu(), expected.to(dtype))
    every = library.all_gather(found)
    assert all(torch.equal(every[0], other) for other in every[1:])
    expect_either_way(peers, given[peers.rank].to(device), found)


def expect_either_way(peers: Any, given: torch.Tensor, expected: torch.Tensor) -> None:
    """One-shot and two-shot give the same bits, whichever of them is chosen for the size."""
    from yaie.worker.parallel.peer_memory import FEW_BYTES

    assert torch.equal(peers.two_shot(given.clone()), expected)
    if given.nbytes <= FEW_BYTES:
        assert torch.equal(peers.one_shot(given.clone()), expected)


def expect_replays(peers: Any, device: torch.device, width: int) -> None:
    """Of a graph with several calls, whose inputs differ from replay to replay."""
    x = torch.zeros(CALLS, width, dtype=torch.float32, device=device)
    outs = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    peers.all_reduce(x[0].clone())
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph):
        for index in range(CALLS):
            outs[index] = peers.all_reduce(x[index].clone())
    for turn in range(REPLAYS):
        x.copy_(torch.arange(CALLS, device=device)[:, None] + 100 * turn + 1000 * peers.rank)
        graph.replay()
        each = peers.size * (torch.arange(CALLS)[:, None] + 100 * turn)
        expected = each + 1000 * sum(range(peers.size))
        assert torch.equal(outs.cpu(), expected.expand(CALLS, width).float())


@pytest.mark.parametrize("ranks", [2, 4])
def test_sums_are_those_of_float32_and_equal_everywhere(ranks: int, tmp_path: Path) -> None:
    if torch.cuda.device_count() < ranks:
        pytest.skip("needs four GPUs")
    spawn: Any = torch.multiprocessing.spawn
    spawn(rank_of, (ranks, str(tmp_path)), nprocs=ranks)


def test_what_cannot_be_shared_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _distributed_c10d

    from yaie.worker.parallel.peer_memory import PeerCollectives

    class Refusing:
        @staticmethod
        def empty_strided_p2p(*_: Any) -> None:
            raise RuntimeError("no such memory\nmore")

    class Library:
        rank, size = 0, 2

    monkeypatch.setattr(_distributed_c10d, "_SymmetricMemory", Refusing)
    with pytest.raises(RankError, match=r"between ranks: no such memory\. With --collectives"):
        PeerCollectives(Library(), torch.distributed.HashStore(), torch.device("cuda", 0))  # type: ignore[arg-type]
