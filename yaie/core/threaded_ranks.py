"""Ranks as threads of one process: who sent how much to whom, and when. For notebooks and tests."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from queue import Empty, Queue
from typing import Any

from torch import Tensor

from yaie.core.errors import RankError

SECONDS = 20.0
"""How long a rank waits for a tensor that does not come."""


@dataclass(frozen=True, slots=True)
class Sent:
    """step: how many tensors `source` had sent before. size: bytes."""

    source: int
    to: int
    step: int
    size: int


@dataclass(slots=True)
class Wire:
    """All that some ranks sent to each other. log: in the order in which it was sent."""

    size: int
    log: list[Sent] = field(default_factory=list)
    queues: dict[tuple[int, int], Queue[Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        # All at once: two threads that made one on demand could make it twice.
        ranks = range(self.size)
        self.queues = {pair: Queue() for pair in product(ranks, ranks)}

    def run(self, work: Callable[["ThreadLink"], Any]) -> list[Any]:
        """What `work` returns with each rank's link. Raises what the first rank that failed raises."""
        results: list[Any] = [None] * self.size
        errors: list[tuple[int, BaseException]] = []

        def body(rank: int) -> None:
            try:
                results[rank] = work(ThreadLink(self, rank))
            except BaseException as error:  # noqa: BLE001, raised again below
                errors.append((isinstance(error, RankError), error))

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise min(errors, key=lambda pair: pair[0])[
                1
            ]  # what a rank waited for in vain comes last
        return results

    def sent_by(self, rank: int) -> int:
        """Bytes."""
        return sum(sent.size for sent in self.log if sent.source == rank)


class ThreadLink:
    """A `Link` of a rank on a wire. What is sent waits in a queue, of any length."""

    def __init__(self, wire: Wire, rank: int) -> None:
        self.rank = rank
        self.size = wire.size
        self._wire = wire

    def send(self, tensor: Tensor, to: int) -> "ThreadTransfer":
        wire = self._wire
        step = sum(sent.source == self.rank for sent in list(wire.log))
        wire.log.append(Sent(self.rank, to, step, tensor.nbytes))
        wire.queues[self.rank, to].put(tensor.clone())
        return ThreadTransfer(None, None, "")

    def receive(self, into: Tensor, source: int) -> "ThreadTransfer":
        what = f"rank {self.rank} waits in vain for rank {source}"
        return ThreadTransfer(into, self._wire.queues[source, self.rank], what)


class ThreadTransfer:
    """A `Transfer` on a wire: of a send there is nothing to wait for."""

    def __init__(self, into: Tensor | None, queue: Queue[Tensor] | None, what: str) -> None:
        self._into = into
        self._queue = queue
        self._what = what

    def wait(self) -> None:
        """Raises RankError if nothing comes."""
        if self._into is None or self._queue is None:
            return
        try:
            self._into.copy_(self._queue.get(timeout=SECONDS))
        except Empty:
            raise RankError(self._what) from None
        self._into = None
