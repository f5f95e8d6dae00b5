"""A connection on threads of its own: the engine's thread neither sends nor waits."""

import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from yaie.engine.handover.memory import Data
from yaie.engine.handover.messages import Message
from yaie.engine.handover.wire import Wire

logger = logging.getLogger(__name__)


class Channel:
    """What arrives is handed over on a thread; what is sent waits for another thread."""

    def __init__(
        self,
        wire: Wire,
        most_data: int,
        on_message: Callable[["Channel", Message, Data | None], None],
        on_end: Callable[["Channel"], None],
    ) -> None:
        """most_data: bytes of data that a message may have. on_message: gets each message, and its data
        if it has any. on_end: is called once, when the other side is gone. Both are called on a thread
        of this one, after `start`."""
        self._wire = wire
        self._most_data = most_data
        self._on_message, self._on_end = on_message, on_end
        self._outbox: SimpleQueue[tuple[Message, Data | None] | None] = SimpleQueue()

    def start(self) -> None:
        """Begin to send and to receive."""
        writer = threading.Thread(target=self._write, name="yaie-blocks-out", daemon=True)
        writer.start()
        threading.Thread(
            target=self._read, args=(writer,), name="yaie-blocks-in", daemon=True
        ).start()

    def send(self, message: Message, data: Data | None = None) -> None:
        """Send it when its turn comes, unless the other side is gone then."""
        self._outbox.put((message, data))

    def close(self) -> None:
        """End the connection."""
        self._wire.end()

    def _write(self) -> None:
        try:
            while (item := self._outbox.get()) is not None:
                self._wire.send(*item)
                del item  # its blocks are not kept until the next one comes
        except OSError as error:
            logger.warning("nothing can be sent to the other server any more: %s", error)
            self._wire.end()

    def _read(self, writer: threading.Thread) -> None:
        try:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    self._on_message(self, *self._wire.receive(self._most_data))
        except ValueError as error:
            logger.warning("the other server's message cannot be read: %s", error)
        finally:
            self._wire.end()
            self._outbox.put(None)
            self._on_end(self)
            writer.join()
            self._wire.close()
