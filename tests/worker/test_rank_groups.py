"""Ranks meet through a file, sum and gather over gloo, and give up what does not come."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from solutions import tensor_parallel
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, RankError
from yaie.worker.parallel import groups
from yaie.worker.parallel.groups import Groups, LibraryCollectives, join
from yaie.worker.parallel.place import answering_rank, places

CPU = torch.device("cpu")


def side_by_side(calls: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(60) for one in [pool.submit(call) for call in calls]]


def met(folder: Path, **settings: Any) -> list[Groups]:
    """All ranks of a configuration, in this process."""
    config = EngineConfig(**settings)
    file = folder / "store"
    return side_by_side(
        [partial(join, config, place, file, tensor_parallel, CPU) for place in places(config)]
    )


def test_the_library_counts_its_exchanges_by_process_and_ranks_meet_all_the_same() -> None:
    pytest.importorskip("triton")
    from yaie.worker.parallel.peer_memory import FromZero

    both = torch.distributed.HashStore()
    stores = FromZero(both), FromZero(both)
    # Called from C++, as by the library. One process has had an engine before, with three exchanges.
    mine, other = (torch.distributed.PrefixStore("group", store) for store in stores)
    for number in range(2):
        mine.set(f"memory/{number + 3}/0", f"mine {number}")
        other.set(f"memory/{number}/1", f"other {number}")
        mine.wait([f"memory/{number + 3}/1"])
        assert mine.get(f"memory/{number + 3}/1") == f"other {number}".encode()
        assert other.get(f"memory/{number}/0") == f"mine {number}".encode()


@pytest.mark.parametrize("collectives", ["auto", "ring", "library"])
def test_the_setting_says_what_sums_and_gathers(tmp_path: Path, collectives: Any) -> None:
    ranks = met(tmp_path, tensor_parallel=3, collectives=collectives)
    kind = LibraryCollectives if collectives == "library" else tensor_parallel.Ring
    assert all(type(rank.collectives) is kind for rank in ranks)
    given = [torch.arange(6.0).view(2, 3) * 10**place for place in range(3)]
    sums = side_by_side(
        [
            partial(rank.collectives.all_reduce, x.t().clone())
            for rank, x in zip(ranks, given, strict=True)
        ]
    )
    assert all(torch.equal(one, sum(given).t()) for one in sums)  # type: ignore[union-attr]
    everything = side_by_side(
        [partial(rank.collectives.all_gather, x) for rank, x in zip(ranks, given, strict=True)]
    )
    assert all(torch.equal(one, torch.stack(given)) for one in everything)


def test_a_rank_speaks_to_its_layer_and_to_its_column(tmp_path: Path) -> None:
    ranks = met(tmp_path, tensor_parallel=2, pipeline_parallel=2)
    assert [rank.place.stage for rank in ranks] == [0, 0, 1, 1]
    assert [rank.collectives.rank for rank in ranks] == [0, 1, 0, 1]
    sums = side_by_side(
        [
            partial(rank.collectives.all_reduce, torch.tensor([10.0**place]))
            for place, rank in enumerate(ranks)
        ]
    )
    assert [int(one) for one in sums] == [11, 11, 1100, 1100]
    first, last = ranks[1].stages, ranks[3].stages
    assert first is not None
    assert last is not None
    arrived = torch.zeros(2)
    sent = first.send(torch.tensor([4.0, 5.0]), 1)
    last.receive(arrived, 0).wait()
    sent.wait()
    assert arrived.tolist() == [4, 5]


def test_tokens_are_drawn_by_the_first_rank_of_the_last_stage() -> None:
    shapes = ((2, 1), (1, 3), (2, 2))
    found = [
        answering_rank(EngineConfig(tensor_parallel=size, pipeline_parallel=stages))
        for size, stages in shapes
    ]
    assert found == [0, 2, 2]


@pytest.mark.parametrize("collectives", ["ring", "library"])
def test_what_does_not_come_in_time_is_an_error(tmp_path: Path, collectives: Any) -> None:
    first, _ = met(tmp_path, tensor_parallel=2, collectives=collectives)
    first.limit.set(0.2)
    with pytest.raises(RankError, match=r"(?i)timed out"):
        first.collectives.all_reduce(torch.ones(4))


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    config = EngineConfig(tensor_parallel=2, pipeline_parallel=2)
    with pytest.raises(ConfigError, match="is 4 ranks, and torch sees 3 GPUs"):
        groups.check_devices(config, torch.device("cuda"))
    groups.check_devices(config, CPU)
