"""A model on several ranks of one process: a thread for each, and queues between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import torch
from torch import Tensor

from solutions import tensor_parallel
from tests.models.plain_ops import PlainOps
from yaie.core.config import EngineConfig
from yaie.models import ModelAdapter, ModelLoader
from yaie.models.shard import Shard
from yaie.models.whole import Passing

SECONDS = 20.0
Ways = dict[tuple[str, int, int], "Queue[Tensor]"]


class Arrival:
    """See `yaie.core.contracts.ranks.Transfer`."""

    def __init__(self, way: "Queue[Tensor] | None" = None, into: Tensor | None = None) -> None:
        self._way = way
        self._into = into

    def wait(self) -> None:
        if self._way is not None and self._into is not None:
            self._into.copy_(self._way.get(timeout=SECONDS))


class QueueLink:
    """See `yaie.core.contracts.ranks.Link`."""

    def __init__(self, ways: Ways, name: str, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._ways = ways
        self._name = name

    def send(self, tensor: Tensor, to: int) -> Arrival:
        assert tensor.is_contiguous()
        self._ways[self._name, self.rank, to].put(tensor.clone())
        return Arrival()

    def receive(self, into: Tensor, source: int) -> Arrival:
        assert into.is_contiguous()
        return Arrival(self._ways[self._name, source, self.rank], into)


def shards(size: int, stages: int) -> list[Shard]:
    """Of all ranks, stage by stage."""
    names = [f"stage{stage}" for stage in range(stages)] + [f"column{c}" for c in range(size)]
    names += [f"draws{column}" for column in range(size)]
    many = range(max(size, stages))
    ways: Ways = {(name, a, b): Queue() for name in names for a in many for b in many}
    made = []
    for stage in range(stages):
        for column in range(size):
            ring = tensor_parallel.Ring(QueueLink(ways, f"stage{stage}", column, size))
            link = QueueLink(ways, f"column{column}", stage, stages)
            draws = QueueLink(ways, f"draws{column}", stage, stages)
            passing = Passing(tensor_parallel.Pipeline(link), draws) if stages > 1 else None
            made.append(Shard(tensor_parallel, ring, passing))
    return made


def load(folder: Path, shard: Shard, ops: Any = None, **settings: Any) -> ModelAdapter:
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32", **settings)
    adapter, _ = ModelLoader(config, progress=False).load_adapter(ops or PlainOps(), shard=shard)
    return adapter


def on_all(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each returns, of calls that run side by side."""

    def quiet(call: Callable[[], Any]) -> Any:
        torch.set_num_threads(1)
        with torch.inference_mode():
            return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(quiet, call) for call in calls]]
