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
from yaie.engine.handover.base import why_not_queued
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import FullError, welcome
from yaie.engine.handover.memory import Data
from yaie.engine.handover.messages import Blocks, Drop, Failed, Message, Prompt
from yaie.engine.handover.store import BlockStore
from yaie.engine.handover.wire import Wire

logger = logging.getLogger(__name__)

ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
"""The prompt is computed when its first token has been drawn, which the other side draws for itself."""
MOST_CONNECTIONS = 64
"""Decode servers at a time, of those that are welcome; more have to wait."""
MOST_CALLERS = 64
"""Connections at a time that are not welcome yet. For one more, the one that has taken longest is cut: a
decode server says who it is in a moment."""
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
        self._callers: dict[Wire, None] = {}  # in the order in which they have come
        self._lock = threading.Lock()  # of these two
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
        with self._lock:
            wires = [*self._callers, *self._connections]
        for wire in wires:
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
        except Exception as error:  # noqa: BLE001
            self._refuse(command, why_not_queued(error))
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
        asked.channel.send(Blocks(asked.number), data)

    def _refuse(self, asked: Asked, why: str) -> None:
        self._counts["handover_failures"] += 1
        asked.channel.send(Failed(asked.number, why))

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
            try:
                self._let_speak(self._address.wire(connection))
            except (OSError, RuntimeError) as error:  # it has gone, or there is no thread for it
                logger.warning("a decode server could not connect: %s", error)
                connection.close()

    def _let_speak(self, wire: Wire) -> None:
        """Hear who this is, on a thread of its own. Raises RuntimeError if there is none."""
        with self._lock:
            late = next(iter(self._callers)) if len(self._callers) >= MOST_CALLERS else None
            if late is not None:
                del self._callers[late]
            self._callers[wire] = None
        if late is not None:
            late.end()
        greeting = threading.Thread(
            target=self._greet, args=(wire,), name="yaie-blocks-hello", daemon=True
        )
        try:
            greeting.start()
        except RuntimeError:
            self._forget(wire)
            raise

    def _take_slot(self, wire: Wire) -> bool:
        """For a decode server that is welcome. False if there is none, or if it has been cut."""
        with self._lock:
            is_free = wire in self._callers and len(self._connections) < MOST_CONNECTIONS
            if is_free:
                del self._callers[wire]
                self._connections.add(wire)
        return is_free

    def _forget(self, wire: Wire) -> None:
        with self._lock:
            self._callers.pop(wire, None)
            self._connections.discard(wire)

    def _greet(self, wire: Wire) -> None:
        def ended(channel: Channel) -> None:
            self._forget(wire)
            self._inbox.put(Dropped(channel, None))
            self._wake()

        try:
            welcome(wire, self._layout, self._secret, lambda: self._take_slot(wire))
            Channel(wire, 0, self._received, ended).start()
        except Exception as error:  # noqa: BLE001 (whoever calls has chosen what went wrong)
            self._forget(wire)
            wire.close()
            if isinstance(error, FullError):
                logger.warning("%d decode servers are connected: one more is not", MOST_CONNECTIONS)
            elif not isinstance(error, EOFError):  # a caller who hangs up says nothing
                logger.warning("a decode server was refused: %s", str(error) or repr(error))

    def _received(self, channel: Channel, message: Message, data: Data | None) -> None:
        match message:
            case Prompt(number, tokens, first) if first >= 0:
                self._inbox.put(Asked(channel, number, tokens.ravel().tolist(), first))
                self._wake()
            case Drop(number):
                self._inbox.put(Dropped(channel, number))
                self._wake()
            case _:
                logger.warning("a decode server sent a message that has no meaning")
