"""The order in which replicas are asked to take a request."""

import hashlib
from collections.abc import Callable, Mapping


def preference(
    loads: Mapping[str, int], matched: Callable[[str], int], imbalance: int, key: bytes = b""
) -> list[str]:
    """Replicas, the one to ask first at the front. It is empty if `loads` is.

    loads: requests in progress, by replica. matched: how much of the prompt a replica has seen.
    imbalance: how many more requests than the least busy replica one may have and still be preferred for
    what it has seen. Those with more come last, the least busy of them first.
    key: decides between replicas that are alike. Routers that do not know of each other agree for the
    same key (rendezvous hashing, Thaler and Ravishankar 1998).
    """
    limit = min(loads.values(), default=0) + imbalance
    balanced = [name for name, load in loads.items() if load <= limit]
    busy = [name for name, load in loads.items() if load > limit]
    balanced.sort(key=lambda name: (-matched(name), loads[name], _draw(key, name)))
    busy.sort(key=lambda name: (loads[name], _draw(key, name)))
    return balanced + busy


def _draw(key: bytes, name: str) -> bytes:
    return hashlib.blake2b(key + name.encode(), digest_size=8).digest()
