"""The side that computes prompts for other engines, beside its own requests."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.handover.address import Address
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import RefusedError, welcome
from yaie.engine.handover.store import BlockStore
from yaie.engine.handover.wire import Data, Message, Wire

logger = logging.getLogger(__name__)

ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
"""The prompt is computed when its first token has been drawn, which the other side draws for itself."""
MOST_CONNECTIONS = 64
"""Decode servers at a time; more have to wait."""
PAUSE_SECONDS = 0.1
"""After a connection that could not be accepted, for want of files for instance."""


@dataclass(slots=True)
class Asked:
    """A prompt of another engine. first: the first of its blocks that the other side lacks."""

    channel: Channel
    number: int
    tokens: list[int]
    first: int


@dataclass(slots=True)
class Dropped:
    """The other side does not wait any more: for this prompt, or, if None, for any."""

    channel: Channel
    number: int | None


class PrefillSide:
    """See `Handover`. Its own requests are queued at once."""

    num_pending = 0

    def __init__(
        self,
        store: BlockStore,
        queue: Callable[[list[int], SamplingParams], list[Request]],
        layout: dict[str, Any],
        address: Address,
        secret: bytes | None = None,
    ) -> None:
        """queue: makes and queues the requests of a prompt. address: where to listen. secret: what both
        servers must know. Raises ConfigError if it cannot listen there."""
        self._store = store
        self._queue = queue
        self._layout = layout
        self._address = address
        self._secret = secret
        self._inbox: SimpleQueue[Asked | Dropped] = SimpleQueue()
        self._running: dict[str, Asked] = {}
        self._connections: set[Wire] = set()
        self._is_closed = False
        self._wake: Callable[[], None] = lambda: None
        self._counts = {"handovers": 0.0, "handover_blocks": 0.0, "handover_failures": 0.0}
        self._listener = address.listen()
        if secret is None and not address.is_private:
            logger.warning(
                "every host that reaches %s can have prompts computed: give both servers a "
                "--handover-key-file, or keep the network private",
                address,
            )
        threading.Thread(target=self._accept, name="yaie-blocks", daemon=True).start()

    # --- see `Handover` ---

    @property
    def has_work(self) -> bool:
        return not self._inbox.empty()

    def takes(self, requests: Sequence[Request]) -> bool:
        return False

    def abort(self, request_id: str) -> bool:
        return False

    def before_step(self) -> list[RequestOutput]:
        with contextlib.suppress(Empty):
            while True:
                self._obey(self._inbox.get_nowait())
        return []

    def own(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        return [output for output in outputs if not self._is_mine(output)]

    def on_wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def stats(self) -> dict[str, float]:
        return dict(self._counts)

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._address.remove()
        for wire in list(self._connections):
            wire.end()

    # --- on the engine's thread ---

    def _obey(self, command: Asked | Dropped) -> None:
        if isinstance(command, Dropped):
            for request_id, asked in list(self._running.items()):
                same = asked.channel is command.channel
                if same and command.number in (None, asked.number):
                    del self._running[request_id]
                    self._store.machine().core.abort(request_id)
            return
        try:
            (request,) = self._queue(command.tokens, ONE_TOKEN)
        except YaieError as error:
            self._refuse(command, str(error))
        else:
            self._running[request.request_id] = command

    def _is_mine(self, output: RequestOutput) -> bool:
        """Whether this is a prompt of another engine, which gets its blocks then."""
        asked = self._running.get(output.request_id)
        if asked is None:
            return False
        if output.finish_reason is FinishReason.ERROR:
            del self._running[output.request_id]
            self._refuse(asked, output.error or "the prompt failed")
        elif output.finish_reason is not None:
            del self._running[output.request_id]
            self._hand_over(asked)
        return True

    def _hand_over(self, asked: Asked) -> None:
        try:
            data = self._store.read(asked.tokens, asked.first)
        except YaieError as error:
            self._refuse(asked, str(error))
            return
        if data is None:
            self._refuse(asked, "the blocks are not cached any more")
            return
        count = self._store.wanted(asked.tokens) - asked.first
        self._counts["handovers"] += 1
        self._counts["handover_blocks"] += count
        asked.channel.send({"blocks": asked.number}, data)

    def _refuse(self, asked: Asked, why: str) -> None:
        self._counts["handover_failures"] += 1
        asked.channel.send({"failed": asked.number, "why": why})

    # --- on other threads ---

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if not self._is_closed:
                    logger.warning("a decode server could not connect: %s", error)
                    time.sleep(PAUSE_SECONDS)
                continue
            if len(self._connections) >= MOST_CONNECTIONS:
                logger.warning("%d decode servers are connected: one more is not", MOST_CONNECTIONS)
                connection.close()
                continue
            wire = self._address.wire(connection)
            self._connections.add(wire)
            threading.Thread(
                target=self._greet, args=(wire,), name="yaie-blocks-hello", daemon=True
            ).start()

    def _greet(self, wire: Wire) -> None:
        try:
            welcome(wire, self._layout, self._secret)
        except (RefusedError, OSError, EOFError, ValueError) as error:
            if not isinstance(error, EOFError):  # a caller who hangs up says nothing
                logger.warning("a decode server was refused: %s", error)
            self._connections.discard(wire)
            wire.close()
            return

        def ended(channel: Channel) -> None:
            self._connections.discard(wire)
            self._inbox.put(Dropped(channel, None))
            self._wake()

        Channel(wire, 0, self._received, ended).start()

    def _received(self, channel: Channel, message: Message, data: Data | None) -> None:
        match message:
            case {"prompt": int(number), "tokens": list(tokens), "first": int(first)} if (
                first >= 0 and all(type(token) is int for token in tokens)
            ):
                self._inbox.put(Asked(channel, number, tokens, first))
                self._wake()
            case {"drop": int(number)}:
                self._inbox.put(Dropped(channel, number))
                self._wake()
            case _:
                logger.warning("a decode server sent a message that has no meaning")
