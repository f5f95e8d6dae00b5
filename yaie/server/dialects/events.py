"""A chat's typed pieces told in typed events: what the replies of both dialects have in common.

An answer is a list of parts: thoughts, texts, calls. One after the other opens, grows and closes, and
each knows its events. A whole answer is what the last events of its stream would hold.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.reply import ExtendedReply, Told

Json = dict[str, Any]


class OpenPart(ABC):
    """A part that is being made."""

    def __init__(self, index: int) -> None:
        """`index`: its place in the answer."""
        self._index = index
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All of it that is there."""
        return "".join(self._texts)

    @abstractmethod
    def whole(self) -> Json:
        """The part as it is now."""

    @abstractmethod
    def begin(self) -> Iterator[Json]:
        """Events before the first piece."""

    @abstractmethod
    def more(self, text: str) -> Iterator[Json]:
        """Events of one more piece."""

    @abstractmethod
    def end(self) -> Iterator[Json]:
        """Events after the last piece."""


class EventReply(ABC):
    """One answer to one call, of one choice. See `yaie.core.contracts.Reply`."""

    include_usage = False
    """The last events hold the usage anyway."""

    def __init__(self, id: str, chat: ExtendedReply) -> None:
        """chat: the reply of the chat completion with the same prompt. It reads pieces, and counts."""
        self.id = id
        self.requests: Sequence[Submitted] = chat.requests
        self._chat = chat
        self._has_begun = False
        self._done: list[Json] = []
        self._open: OpenPart | None = None

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        self._chat.add(output)

    def result(self) -> Json:
        """The whole answer, once its request has finished."""
        for told in self._chat.whole():
            for _ in self._piece(told):
                pass
        return self._answer()

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The events that an output makes. Raises YaieError if the request failed."""
        pieces = self._chat.told(output)
        if not self._has_begun:
            self._has_begun = True
            yield from self._begin()
        for told in pieces:
            yield from self._piece(told)

    def usage(self) -> Json:
        """Token counts as a chat completion has them."""
        return self._chat.usage()

    def usage_chunk(self) -> Json:
        """Not sent: see `include_usage`."""
        return self._chat.usage_chunk()

    @abstractmethod
    def encoded(self, event: Json) -> str:
        """An event as compact JSON."""

    @abstractmethod
    def failure(self, error: Json) -> Iterable[Json]:
        """The last events of a stream that failed. error: the error object as elsewhere."""

    @abstractmethod
    def _begin(self) -> Iterator[Json]:
        """The events before all parts."""

    @abstractmethod
    def _piece(self, told: Told) -> Iterator[Json]:
        """The events of a piece."""

    @abstractmethod
    def _answer(self) -> Json:
        """The answer as it is now."""

    @property
    def _place(self) -> int:
        """Of the next part."""
        return len(self._done) + (self._open is not None)

    def _grow(self, text: str) -> Iterator[Json]:
        assert self._open is not None
        yield from self._open.more(text)

    def _next(self, part: OpenPart) -> Iterator[Json]:
        yield from self._close()
        self._open = part
        yield from part.begin()

    def _close(self) -> Iterator[Json]:
        if self._open is not None:
            yield from self._open.end()
            self._done.append(self._open.whole())
            self._open = None
