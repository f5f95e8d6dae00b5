"""The decode side's connection to its prefill server, which is made again when it has ended.

On a thread of its own: to resolve a name or to reach a host may take seconds, and the engine's steps go
on meanwhile.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from yaie.engine.handover.address import Address
from yaie.engine.handover.channel import Channel
from yaie.engine.handover.greeting import HELLO_SECONDS, RefusedError, greet
from yaie.engine.handover.memory import Data
from yaie.engine.handover.messages import Message

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""Between two attempts to reach the prefill server."""
REFUSED_SECONDS = 30.0
"""After a prefill server has refused: another one may have taken its place."""


class Link:
    """channel: to the prefill server, if there is one that fits. refused: why the last one did not."""

    def __init__(
        self,
        address: Address,
        layout: dict[str, Any],
        secret: bytes | None,
        most_data: int,
        on_message: Callable[[Channel, Message, Data | None], None],
        on_end: Callable[[Channel], None],
    ) -> None:
        """For the last three see `Channel`. `channel` is None before on_end is called."""
        self._address, self._layout, self._secret = address, layout, secret
        self._most_data = most_data
        self._on_message, self._on_end = on_message, on_end
        self.channel: Channel | None = None
        self.refused = ""
        self._said = ""
        self._tried, self._closing, self._ended = (threading.Event() for _ in range(3))

    def start(self) -> None:
        """Begin. Returns after the first attempt, or when that takes longer than a greeting may."""
        threading.Thread(target=self._keep, name="yaie-blocks-link", daemon=True).start()
        self._tried.wait(HELLO_SECONDS)

    def close(self) -> None:
        """End the connection, and make no other one."""
        self._closing.set()
        if (channel := self.channel) is not None:
            channel.close()

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._ended.clear()
            is_open = self._open()
            self._tried.set()
            if is_open:
                self._ended.wait()
            self._closing.wait(REFUSED_SECONDS if self.refused else AGAIN_SECONDS)

    def _open(self) -> bool:
        """One attempt."""
        self.refused = ""
        try:
            wire = self._address.connect()
        except OSError as error:
            self._tell(f"no prefill server listens at {self._address} ({error})")
            return False
        try:
            greet(wire, self._layout, self._secret)
        except Exception as error:  # noqa: BLE001 (whatever is there has chosen what went wrong)
            wire.close()
            if isinstance(error, RefusedError):
                self.refused = error.message
            why = "it hung up" if isinstance(error, EOFError) else str(error) or repr(error)
            self._tell(f"the prefill server at {self._address} cannot help: {why}")
            return False
        channel = Channel(wire, self._most_data, self._on_message, self._end)
        self.channel = channel
        self._said = ""
        channel.start()
        if self._closing.is_set():  # by a thread that has not seen it
            channel.close()
        return True

    def _end(self, channel: Channel) -> None:
        self.channel = None
        self._on_end(channel)
        self._ended.set()

    def _tell(self, what: str) -> None:
        """Log it, once while it stays the same."""
        if what != self._said and not self._closing.is_set():
            logger.warning("%s: prompts are computed here", what)
        self._said = what
