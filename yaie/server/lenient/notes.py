"""What an answer's headers tell of its request: fields that were ignored, and a lowered maximum.

Whoever works on a request may add to them. The server has one `Notes` for each request, the process that
reads large bodies one for each body.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

IGNORED = "x-yaie-ignored"
MAX_TOKENS = "x-yaie-max-tokens"
MOST = 16
"""Names in the header; how many more there are is told behind them."""
LONGEST = 64
"""Characters of a name there."""
MOST_LOGGED = 1000
"""Names. Clients may make up as many as they like."""
_logged: set[str] = set()


@dataclass(slots=True)
class Notes:
    """is_strict: what has no effect is refused, not ignored. ignored: fields as a client writes them
    ("messages[].name"), in the order in which they were met. max_tokens: what is left of a maximum that
    the context could not hold."""

    is_strict: bool = False
    ignored: list[str] = field(default_factory=list)
    max_tokens: int | None = None

    def ignore(self, name: str) -> None:
        """Once for each name."""
        if name not in self.ignored:
            self.ignored.append(name)

    def log(self) -> None:
        """Tell each name once in the life of the server."""
        for name in map(_plain, self.ignored):
            if name not in _logged and len(_logged) < MOST_LOGGED:
                _logged.add(name)
                logger.info("requests hold %s, which has no effect", name)

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        headers = {}
        if self.ignored:
            told = [_plain(name) for name in self.ignored[:MOST]]
            if more := len(self.ignored) - MOST:
                told += [f"and {more} more"] * (more > 0)
            headers[IGNORED] = ", ".join(told)
        if self.max_tokens is not None:
            headers[MAX_TOKENS] = str(self.max_tokens)
        return headers


_current: ContextVar[Notes | None] = ContextVar("notes", default=None)


@contextmanager
def noting(*, is_strict: bool = False) -> Iterator[Notes]:
    """Notes that `ignored` and `lowered` add to, in this task and in those that it starts."""
    notes = Notes(is_strict)
    token = _current.set(notes)
    try:
        yield notes
    finally:
        _current.reset(token)


def ignored(name: str) -> None:
    """A field of the request at hand has no effect."""
    if (notes := _current.get()) is not None:
        notes.ignore(name)


def refuses() -> bool:
    """Whether what has no effect is to be refused by name: the server is strict (`--strict`)."""
    notes = _current.get()
    return notes is not None and notes.is_strict


def lowered(max_tokens: int) -> None:
    """The answer to the request at hand may have so many tokens, fewer than were asked for."""
    if (notes := _current.get()) is not None:
        notes.max_tokens = max_tokens


def _plain(name: str) -> str:
    """A name as a header can carry it: a client may call a field what it likes."""
    text = name.encode("ascii", "replace").decode("ascii")
    text = "".join(char if char.isprintable() and char != "," else "?" for char in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
