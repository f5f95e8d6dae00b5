"""What goes with a request beside its body: what its answer's headers will tell, and a form to keep to.

Any code that works on a request may add to them. The server has one `Notes` for each request, and the
process that reads large bodies has one for each body.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from yaie.core.constraint import Constraint

logger = logging.getLogger(__name__)

IGNORED = "x-yaie-ignored"
MAX_TOKENS = "x-yaie-max-tokens"
MOST = 16
"""Names in the header, which says behind them if there are more."""
LONGEST = 64
"""Characters of a name there."""
MOST_LOGGED = 1000
"""Names. Clients may make up as many as they like."""
_logged: set[str] = set()


@dataclass(slots=True)
class Notes:
    """is_strict: what has no effect is refused, not ignored. ignored: fields as a client writes them
    ("messages[].name"), in the order in which they were met, and one more than are told. max_tokens:
    what is left of a maximum that the context could not hold. form: what the answer must look like, and
    the field that says so, where the type that an endpoint takes has none for it. beside: what else it
    asks for without a field of that type, by name."""

    is_strict: bool = False
    ignored: list[str] = field(default_factory=list)
    max_tokens: int | None = None
    form: tuple[str, Constraint] | None = None
    beside: dict[str, Any] = field(default_factory=dict)

    def ignore(self, name: str) -> None:
        """Once for each name, as long as there is room."""
        if len(self.ignored) <= MOST and name not in self.ignored:
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
            told += ["and more"] * (len(self.ignored) > MOST)
            headers[IGNORED] = ", ".join(told)
        if self.max_tokens is not None:
            headers[MAX_TOKENS] = str(self.max_tokens)
        return headers


current_notes: ContextVar[Notes | None] = ContextVar("notes", default=None)
"""Of the request that this task answers. Each request is a task of its own, as are those that it
starts."""


@contextmanager
def noting(*, is_strict: bool = False) -> Iterator[Notes]:
    """Notes that `ignored` and `lowered` add to, in this task and in those that it starts."""
    notes = Notes(is_strict)
    token = current_notes.set(notes)
    try:
        yield notes
    finally:
        current_notes.reset(token)


def ignored(name: str) -> None:
    """A field of the request at hand has no effect."""
    if (notes := current_notes.get()) is not None:
        notes.ignore(name)


def refuses() -> bool:
    """Whether what has no effect is to be refused by name: the server is strict (`--strict`)."""
    notes = current_notes.get()
    return notes is not None and notes.is_strict


def ask(name: str, form: Constraint) -> None:
    """The answer to the request at hand must have this form, as the field `name` says."""
    if (notes := current_notes.get()) is not None:
        notes.form = name, form


def put_beside(name: str, value: Any) -> None:
    """The request at hand asks for this."""
    if (notes := current_notes.get()) is not None:
        notes.beside[name] = value


def beside(name: str) -> Any:
    """What `put_beside` was given of the request at hand; None for nothing."""
    notes = current_notes.get()
    return None if notes is None else notes.beside.get(name)


def lowered(max_tokens: int) -> None:
    """The answer to the request at hand may have so many tokens, fewer than were asked for."""
    if (notes := current_notes.get()) is not None:
        notes.max_tokens = max_tokens


def _plain(name: str) -> str:
    """A name as a header can carry it: a client may call a field what it likes."""
    text = "".join(char if "!" <= char <= "~" and char != "," else "?" for char in name) or "?"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
