"""Calls of tools in what a model writes, while it writes.

A parser takes text in pieces of any size and gives events; how the text was cut makes no difference,
because every character is read in its turn. What may become a call is held back (`_held`) until it is
decided. A call is one from the moment that its name is known, which must be that of a tool of the
request: from there on its arguments are passed on as they come. What turns out to be no call is content,
every character of it. A call that goes wrong after its arguments began cannot be taken back: it stays as
far as it was passed on, the rest is content, and `has_called` is false.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, TypeVar

from yaie.server.tools.events import Arguments, Call, Content, Event
from yaie.server.tools.json_scanner import JsonScanner, Malformed, Step

ARGUMENTS = ("arguments", "parameters")

_INSIDE = re.compile(r'[^"\\\x00-\x1f]*')
"""Of a JSON string."""

T = TypeVar("T")
Reading = Generator[None, str, T]
"""A generator that is sent characters; it ends when it has read what it is for."""


class CallParser(ABC):
    """Reads the answer of one request."""

    markers: ClassVar[tuple[str, ...]]
    """What calls begin with, anywhere in the text. Each has its first character only once."""

    def __init__(self, functions: Mapping[str, dict[str, Any]]) -> None:
        """functions: that may be called, each with the schema of its arguments."""
        self._functions = functions
        self._events: list[Event] = []
        self._written: list[str] = []  # of the last event, in pieces
        self._pieces: list[str] = []  # of what is held back
        self._again: str | None = None
        self._num_begun = 0
        self._num_ended = 0
        self._is_plain = False  # whether nothing but space is held, and no marker has begun
        self._scanner: JsonScanner | None = None  # of the arguments that are being passed on
        self._special = re.compile("|".join(re.escape(marker[0]) for marker in self.markers))
        self._machine = self._read()
        next(self._machine)

    def push(self, text: str) -> list[Event]:
        """What this piece of text decides."""
        place = 0
        while place < len(text):
            place = self._pass_over(text, place)
            if place < len(text):
                self._machine.send(text[place])
                place += 1
        return self._taken()

    def _pass_over(self, text: str, place: int) -> int:
        """Where the next character stands that has to be looked at. What comes before is passed on at
        once: plain text, and the inside of strings; most of all text is one of them."""
        if self._is_plain:
            end = self._special.search(text, place)
            run = text[place : end.start()] if end else text[place:]
            if solid := run.rstrip():  # before it nothing but space is held
                self._pieces.append(solid)
                self._release()
            if len(solid) < len(run):
                self._pieces.append(run[len(solid) :])
        else:
            run = self._pass_over_value(text, place)
        return place + len(run)

    def _pass_over_value(self, text: str, place: int) -> str:
        """The text from there on that belongs to the value of an argument, and was passed on."""
        if self._scanner is None or not self._scanner.is_in_string:
            return ""
        found = _INSIDE.match(text, place)
        run = found[0] if found else ""
        if run:
            self._pass_on(run)
        return run

    def end(self, *, is_cut: bool = False) -> list[Event]:
        """The rest, when no more text comes. is_cut: a limit ended it, and the beginning of a call that
        is held back would have become one: it is left out, or half of a tag would be content."""
        is_space = self._held.isspace()
        if (is_space and self._num_begun) or (is_cut and not is_space):
            self._held = ""
        else:
            self._release()
        return self._taken()

    @property
    def has_called(self) -> bool:
        """Whether there were calls, all of them complete."""
        return 0 < self._num_begun == self._num_ended

    def _taken(self) -> list[Event]:
        self._write_text()
        events, self._events = self._events, []
        return events

    # --- the language ---

    def _read(self) -> Reading[None]:
        while True:
            marker = yield from self._content()
            try:
                yield from self._calls(marker)
            except Malformed:
                self._give_back()  # it may begin something else
                self._release()

    @abstractmethod
    def _calls(self, marker: str) -> Reading[None]:
        """Read one or several calls behind a marker. Raises Malformed if they are none."""

    def _content(self) -> Reading[str]:
        """Pass text on until a marker, which is returned. A marker takes the space before it along."""
        part = ""
        while True:
            self._is_plain = not part and self._again is None
            character = yield from self._next()
            self._is_plain = False
            if any(marker.startswith(part + character) for marker in self.markers):
                part += character
                if part in self.markers:
                    return part
            elif part:
                self._give_back()
                self._release()
                part = ""
            elif not character.isspace():
                self._release()

    def _object(self) -> Reading[None]:
        """{"name": ..., "arguments": {...}}, its keys in any order, behind the first brace."""
        name: str | None = None
        arguments: str | None = None
        character = yield from self._solid()
        while character != "}":
            key, character = yield from self._key(character)
            if key == "name" and name is None and character == '"':
                name = self._known((yield from self._string(character)))
                if arguments is not None:
                    self._begin(name)
                    self._pass_on(arguments)
                    self._num_ended += 1
            elif key in ARGUMENTS and arguments is None and character == "{":
                if name is None:
                    arguments = yield from self._value(character)
                else:
                    arguments = yield from self._arguments(name)
            elif key in ("name", *ARGUMENTS):
                raise Malformed
            else:
                yield from self._value(character)
            character = yield from self._solid()
            if character == ",":
                character = yield from self._solid()
                if character == "}":
                    raise Malformed
            elif character != "}":
                raise Malformed
        if name is None:
            raise Malformed
        if arguments is None:
            self._begin(name)
            self._pass_on("{}")
            self._num_ended += 1
        self._held = ""

    def _key(self, character: str) -> Reading[tuple[str, str]]:
        """A key, and the first character of its value."""
        key = yield from self._string(character)
        if (yield from self._solid()) != ":":
            raise Malformed
        return key, (yield from self._solid())

    def _arguments(self, name: str) -> Reading[str]:
        """Begin a call, and pass its arguments on, of which the first brace was read."""
        self._begin(name)
        scanner = self._scanner = JsonScanner()
        scanner.feed("{")
        self._pass_on("{")
        step = Step.MORE
        try:
            while step is Step.MORE:
                character = yield from self._next()
                step = scanner.feed(character)
                self._pass_on(character)
        finally:
            self._scanner = None
        self._num_ended += 1
        return ""

    def _known(self, name: str) -> str:
        if name not in self._functions:
            raise Malformed
        return name

    def _string(self, first: str) -> Reading[str]:
        if first != '"':
            raise Malformed
        text: str = json.loads((yield from self._value(first)))
        return text

    def _value(self, first: str) -> Reading[str]:
        """A JSON value as it was written."""
        scanner, character, text = JsonScanner(), first, list[str]()
        while (step := scanner.feed(character)) is Step.MORE:
            text.append(character)
            character = yield from self._next()
        if step is Step.LAST:
            text.append(character)
        else:
            self._give_back()
        return "".join(text)

    def _literal(self, text: str) -> Reading[bool]:
        """Whether this comes next, space before it apart. What came instead is content."""
        character = yield from self._solid()
        for position, expected in enumerate(text):
            if character != expected:
                self._give_back()
                self._release()
                return False
            if position + 1 < len(text):
                character = yield from self._next()
        self._held = ""
        return True

    def _one_of(self, *texts: str) -> Reading[str]:
        """Which of these comes next, space before it apart. Raises Malformed if none does."""
        part = yield from self._solid()
        while part not in texts:
            if not any(text.startswith(part) for text in texts):
                raise Malformed
            part += yield from self._next()
        return part

    # --- characters ---

    def _next(self) -> Reading[str]:
        if self._again is None:
            character = yield
        else:
            character, self._again = self._again, None
        self._pieces.append(character)
        return character

    def _solid(self) -> Reading[str]:
        """The next character that is no space."""
        character = yield from self._next()
        while character.isspace():
            character = yield from self._next()
        return character

    def _give_back(self) -> None:
        last = self._pieces.pop()
        self._again, rest = last[-1], last[:-1]
        if rest:
            self._pieces.append(rest)

    # What is held back grows by single characters. As one string it would be copied for each of them.
    @property
    def _held(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @_held.setter
    def _held(self, text: str) -> None:
        self._pieces = [text] if text else []

    # --- events ---

    def _release(self) -> None:
        """What was held back is content."""
        if held := self._held:
            if not (self._events and isinstance(self._events[-1], Content)):
                self._add(Content(""))
            self._written.append(held)
            self._held = ""

    def _begin(self, name: str) -> None:
        self._add(Call(self._num_begun, name))
        self._num_begun += 1

    def _pass_on(self, text: str) -> None:
        """A piece of the arguments of the call that has begun last."""
        self._held = ""
        if not (self._events and isinstance(self._events[-1], Arguments)):
            self._add(Arguments(self._num_begun - 1, ""))
        self._written.append(text)

    def _add(self, event: Event) -> None:
        self._write_text()
        self._events.append(event)

    def _write_text(self) -> None:
        """The last event will get no more text."""
        last, text = self._events[-1] if self._events else None, "".join(self._written)
        if isinstance(last, Content | Arguments):
            last.text = text
        self._written = []
