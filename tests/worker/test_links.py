"""Links over a process group: what a rank sends arrives, and a rank that is gone is an error."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from yaie.core.errors import RankError
from yaie.worker.parallel.links import GroupLink


def serve(work: Callable[[GroupLink], Any], folder: Path, rank: int, answers: Any) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        answers.put((rank, work(GroupLink(seconds=10))))
    except RankError as error:
        answers.put((rank, f"RankError: {error.message}"))
    answers.close()
    answers.join_thread()
    os._exit(0)


def on_two(work: Callable[[GroupLink], Any], folder: Path, answers: int = 2) -> dict[int, Any]:
    """What `work` returns on two ranks, or the RankError that it raises, of so many of them."""
    context = get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=serve, args=(work, folder, rank, queue)) for rank in (0, 1)]
    for process in processes:
        process.start()
    try:
        return dict(queue.get(timeout=60) for _ in range(answers))
    finally:
        for process in processes:
            process.kill()
            process.join()


linux = pytest.mark.skipif(not hasattr(os, "fork") or os.uname().sysname != "Linux", reason="forks")


@linux
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_tensors_arrive_in_the_order_in_which_they_were_sent(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    def work(link: GroupLink) -> Any:
        other = 1 - link.rank
        tensors = [
            torch.full((size,), size + 10 * link.rank, dtype=dtype) for size in (1, 0, 70_000)
        ]
        arrived = [torch.empty_like(x) for x in tensors]
        transfers = [link.send(x, other) for x in tensors]
        transfers += [link.receive(x, other) for x in arrived]
        for transfer in transfers:
            transfer.wait()
        return [x.unique().tolist() for x in arrived], (link.rank, link.size)

    got = on_two(work, tmp_path)
    assert got[0][1] == (0, 2)
    # bfloat16 has eight bits for a number: 70,000 is another one there.
    large = [float(torch.tensor(70_000 + more, dtype=dtype)) for more in (0, 10)]
    assert got[1][0] == [[1], [], [large[0]]]
    assert got[0][0] == [[11], [], [large[1]]]


@linux
def test_a_rank_that_has_died_is_an_error_for_the_other(tmp_path: Path) -> None:
    def work(link: GroupLink) -> Any:
        if link.rank:
            os._exit(1)
        link.receive(torch.empty(4), 1).wait()
        return "nothing was wrong"

    said = on_two(work, tmp_path, answers=1)[0]
    assert said.startswith("RankError: receiving from rank 1 failed: ")


@linux
def test_a_rank_that_does_not_come_is_an_error_when_the_time_is_over(tmp_path: Path) -> None:
    def work(link: GroupLink) -> Any:
        if link.rank == 0:
            link._seconds = 0.5
            link.receive(torch.empty(4), 1).wait()
        else:
            import time

            time.sleep(30)

    assert on_two(work, tmp_path, answers=1)[0].startswith(
        "RankError: receiving from rank 1 failed: "
    )


@linux
def test_a_transfer_that_is_over_may_be_waited_for_again(tmp_path: Path) -> None:
    def work(link: GroupLink) -> Any:
        arrived = torch.empty(70_000)
        transfers = [link.receive(arrived, 1 - link.rank)]
        transfers += [link.send(torch.full((70_000,), float(link.rank)), 1 - link.rank)]
        for transfer in transfers * 3:
            transfer.wait()
        return arrived.unique().tolist()

    assert on_two(work, tmp_path) == {0: [1.0], 1: [0.0]}
