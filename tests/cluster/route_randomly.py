"""Drives the router of `yaie.cluster.router` as Serve does, and checks each choice by the naive list.

Run by `test_router.py` where Ray is installed. The replicas are made up, the router's class is real.
"""

import asyncio
import random
import sys
from types import SimpleNamespace
from typing import Any

from ray.serve._private.common import DeploymentHandleSource, DeploymentID
from ray.serve.request_router import ReplicaID

from tests.cluster.naive_prefixes import NaivePrefixes
from yaie.cluster.exchange import Asked
from yaie.cluster.prefixes import CAPACITY, CHUNK, chain
from yaie.cluster.router import PrefixRouter

IMBALANCE = 3
DEPLOYMENT = DeploymentID(name="Engines", app_name="yaie")


def pending(text: bytes, *avoid: str) -> Any:
    asked = Asked({}, b"", chain(text), frozenset(avoid))
    return SimpleNamespace(args=[asked], routing_context=SimpleNamespace(should_backoff=False))


class Replica:
    """What the router asks of one."""

    max_ongoing_requests = 1000

    def __init__(self, name: str) -> None:
        self.replica_id = ReplicaID(name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return 0


async def drive(seed: int) -> int:
    """Route a few hundred requests; returns how many were sent where their beginning was known."""
    draw = random.Random(seed)
    router = PrefixRouter(DEPLOYMENT, DeploymentHandleSource.UNKNOWN)
    router.initialize_state(imbalance=IMBALANCE)
    naive, loads, followed = NaivePrefixes(CAPACITY), {}, 0
    there = [Replica(f"r{number}") for number in range(3)]
    for turn in range(300):
        if turn % 60 == 0:  # one goes, another comes
            there = [*there[1:], Replica(f"r{turn}")]
            router.update_replicas(there)
            loads = {
                one.replica_id.unique_id: loads.get(one.replica_id.unique_id, 0) for one in there
            }
            naive.keep(list(loads))
        text = b"".join(bytes([draw.choice(b"ab")]) * CHUNK for _ in range(draw.randrange(5)))
        if turn % 10 == 0:  # lost with two of three: the third is asked, or none
            *lost, left = loads
            [[only]] = await router.choose_replicas(router._replicas_list, pending(b"", *lost))
            assert only.replica_id.unique_id == left
            assert await router.choose_replicas(router._replicas_list, pending(b"", *loads)) == []
        ranks = await router.choose_replicas(router._replicas_list, pending(text))
        [chosen] = ranks[0]
        name = chosen.replica_id.unique_id
        fit = [one for one, load in loads.items() if load - min(loads.values()) <= IMBALANCE]
        assert name in fit, (name, loads)
        best = max(naive.match(one, text) for one in fit)
        assert naive.match(name, text) == best, (name, text)
        assert loads[name] == min(load for one, load in loads.items()
                                  if one in fit and naive.match(one, text) == best)  # fmt: skip
        followed += best > 0
        naive.add(name, text)
        router.on_send_request(chosen.replica_id)
        router.on_request_routed(pending(text), chosen.replica_id, None)
        loads[name] += 1
        for one in there:
            if loads[one.replica_id.unique_id] and draw.random() < 0.25:
                loads[one.replica_id.unique_id] -= 1
                router.on_request_completed(one.replica_id, "")
    return followed


if __name__ == "__main__":
    print(sum(asyncio.run(drive(int(seed))) for seed in sys.argv[1:]))
