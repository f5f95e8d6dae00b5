"""The side that has prompts computed elsewhere, and goes on from their blocks.

A request whose prompt is asked for waits here, before the scheduler knows of it. It is queued when its
blocks have been stored, and just the same when they do not come: then it computes its prompt itself.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from yaie.core.errors import ConfigError, YaieError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus
from yaie.engine.asks.arrays import ints
from yaie.engine.handover.address import Address
from yaie.engine.handover.base import why_not_queued
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.link import Link
from yaie.engine.handover.memory import Data
from yaie.engine.handover.messages import Blocks, Drop, Failed, Message, Prompt
from yaie.engine.handover.store import BlockStore

logger = logging.getLogger(__name__)

LONGEST_SECONDS = 30.0
"""That a prompt may take elsewhere."""
IDLE_SECONDS = 0.005
"""How long a step without anything to compute waits for blocks."""


@dataclass(slots=True)
class Waiting:
    """A prompt that is asked for. requests: those of it that are not aborted."""

    channel: Channel
    number: int
    requests: list[Request]
    tokens: list[int]
    first: int
    since: float


@dataclass(slots=True)
class Arrived:
    """What came for a prompt; number None: nothing comes any more by this channel. data: None if it
    failed."""

    channel: Channel
    number: int | None
    data: Data | None = None


class DecodeSide:
    """See `Handover`."""

    def __init__(
        self,
        store: BlockStore,
        queue: Callable[[Request], None],
        layout: dict[str, Any],
        address: Address,
        least_tokens: int,
        secret: bytes | None = None,
    ) -> None:
        """queue: queues a request. address: where the prefill server listens. least_tokens: what
        lacks fewer in the cache is computed here. secret: what both servers must know.

        Raises ConfigError if a prefill server answers that does not fit.
        """
        self._store = store
        self._queue = queue
        self._least_tokens = least_tokens
        self._numbers = itertools.count()
        self._waiting: dict[int, Waiting] = {}
        self._arrived: SimpleQueue[Arrived] = SimpleQueue()
        self._counts = {"handovers": 0.0, "handover_blocks": 0.0, "handover_failures": 0.0}
        sizes = store.machine().sizes
        most_data = sizes.num_blocks * sizes.bytes_per_block
        self._link = Link(address, layout, secret, most_data, self._received, self._ended)
        self._link.start()
        if why := self._link.refused:
            self.close()
            raise ConfigError(
                f"the prefill server at {address} cannot help: {why}", param="handover"
            )

    # --- see `Handover` ---

    @property
    def num_pending(self) -> int:
        return sum(len(waiting.requests) for waiting in self._waiting.values())

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def takes(self, requests: Sequence[Request]) -> bool:
        head = requests[0]
        tokens = head.token_ids
        wanted = self._store.wanted(tokens)
        if not head.may_reuse_prefix or not wanted:
            return False
        first = self._store.cached(head)
        if first >= wanted or len(tokens) - first * self._store.block_size < self._least_tokens:
            return False
        channel = self._link.channel
        if channel is None:
            return False
        number = next(self._numbers)
        self._waiting[number] = Waiting(
            channel, number, list(requests), list(tokens), first, time.monotonic()
        )
        channel.send(Prompt(number, ints(list(tokens)), first))
        return True

    def abort(self, request_id: str) -> bool:
        for waiting in self._waiting.values():
            for request in waiting.requests:
                if request.request_id != request_id:
                    continue
                waiting.requests.remove(request)
                request.status, request.finish_reason = RequestStatus.FINISHED, FinishReason.ABORT
                if not waiting.requests:
                    del self._waiting[waiting.number]
                    self._drop(waiting)
                return True
        return False

    def before_step(self) -> list[RequestOutput]:
        return self._settle()

    def own(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        return outputs

    def on_wake(self, wake: Callable[[], None]) -> None:
        """While anything waits here `has_work` is true, so the engine's thread does not sleep."""

    def stats(self) -> dict[str, float]:
        tokens = self._counts["handover_blocks"] * self._store.block_size
        linked = float(self._link.channel is not None)
        return self._counts | {"external_tokens": tokens, "handover_linked": linked}

    def close(self) -> None:
        self._link.close()

    # --- on the engine's thread ---

    def _settle(self) -> list[RequestOutput]:
        """Queue what has waited long enough; returns the ends of those that cannot be queued."""
        outputs: list[RequestOutput] = []
        idle = not self._store.machine().core.has_work
        with contextlib.suppress(Empty):
            while True:
                wait = IDLE_SECONDS if idle and self._waiting else 0.0
                arrived = self._arrived.get(timeout=wait) if wait else self._arrived.get_nowait()
                idle = False
                outputs += self._take(arrived)
        late = time.monotonic() - LONGEST_SECONDS
        for waiting in [one for one in self._waiting.values() if one.since < late]:
            logger.warning("a prompt was not computed within %g s", LONGEST_SECONDS)
            self._drop(waiting)
            outputs += self._settled(waiting, None)
        return outputs

    def _take(self, arrived: Arrived) -> list[RequestOutput]:
        if arrived.number is None:
            lost = [one for one in self._waiting.values() if one.channel is arrived.channel]
            if lost:
                logger.warning(
                    "the prefill server is gone: %d prompts are computed here", len(lost)
                )
            settled = [self._settled(waiting, None) for waiting in lost]
            return [output for outputs in settled for output in outputs]
        waiting = self._waiting.get(arrived.number)
        return [] if waiting is None else self._settled(waiting, arrived.data)

    def _settled(self, waiting: Waiting, data: Data | None) -> list[RequestOutput]:
        """Store what came, if anything did, and queue the requests."""
        del self._waiting[waiting.number]
        count = self._store.wanted(waiting.tokens) - waiting.first
        size = count * self._store.machine().sizes.bytes_per_block
        is_stored = data is not None and len(data) == size
        try:
            if data is not None and is_stored:
                is_stored = self._store.write(waiting.tokens, waiting.first, data)
        except YaieError:
            logger.exception("blocks from the prefill server could not be stored")
            is_stored = False
        if is_stored:
            self._counts["handovers"] += 1
            self._counts["handover_blocks"] += count
        else:
            self._counts["handover_failures"] += 1
        outputs: list[RequestOutput] = []
        for request in waiting.requests:
            try:
                self._queue(request)
            except Exception as error:  # noqa: BLE001
                outputs.append(_failed(request, why_not_queued(error)))
        return outputs

    def _drop(self, waiting: Waiting) -> None:
        """No request waits for this prompt any more."""
        waiting.channel.send(Drop(waiting.number))

    # --- on other threads ---

    def _received(self, channel: Channel, message: Message, data: Data | None) -> None:
        match message:
            case Blocks(number) if data is not None:
                self._arrived.put(Arrived(channel, number, data))
            case Failed(number, why):
                logger.warning("the prefill server did not compute a prompt: %s", why)
                self._arrived.put(Arrived(channel, number))
            case _:
                logger.warning("the prefill server sent a message that has no meaning")

    def _ended(self, channel: Channel) -> None:
        self._arrived.put(Arrived(channel, None))


def _failed(request: Request, why: str) -> RequestOutput:
    """The end of a request that cannot be queued."""
    request.status, request.finish_reason = RequestStatus.FINISHED, FinishReason.ERROR
    request.error, request.failure = why, FailureKind.ENGINE
    return RequestOutput.of(request, "", [], FinishReason.ERROR)
