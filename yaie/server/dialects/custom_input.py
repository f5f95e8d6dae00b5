"""The input of a custom tool, which is a text, inside the JSON that a model writes its calls in."""

import json
import re
from collections.abc import Generator

from yaie.server.tools.json_scanner import JsonScanner, Malformed, Step

INPUT = "input"
"""The one argument that a custom tool has for the model."""

_SPACE = " \t\n\r"
_UNIT = re.compile(r'[^"\\]+|"|\\u[0-9a-fA-F]{4}|\\[^u]', re.DOTALL)
"""Of a JSON string: plain text, its end, or an escape."""
_CUT = re.compile(r"\\(u[0-9a-fA-F]{0,3})?")
"""An escape of which more may come."""
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HALF = "\ufffd"
"""For half of a surrogate pair, which is no character."""


class InputReader:
    """Reads the string `input` of a call's arguments while they come.

    Pieces of any size give the same text. Arguments that are no object with such a string are themselves
    the input, character by character; then it is known only at the end.
    """

    def __init__(self) -> None:
        self._held: list[str] = []  # pieces that may be the input as they are
        self._rest = ""  # an escape of which more may come
        self._high = 0  # the first half of a surrogate pair, or 0
        self._is_found = self._is_raw = self._is_over = False
        self._search = self._find()
        next(self._search)

    def push(self, text: str) -> str:
        """What this piece of the arguments adds to the input."""
        if self._is_over:
            return ""
        if self._is_found:
            return self._decoded(text)
        self._held.append(text)
        if self._is_raw:
            return ""
        for place, character in enumerate(text):
            try:
                self._search.send(character)
            except StopIteration:
                self._is_found = True
                self._held.clear()
                return self._decoded(text[place + 1 :])
            except Malformed:
                self._is_raw = True
                break
        return ""

    def end(self) -> str:
        """What is left of the input when no more arguments come."""
        if self._is_found:
            return self._flushed()
        text = "".join(self._held)
        self._held.clear()
        return text

    # --- where the string begins ---

    def _find(self) -> Generator[None, str, None]:
        """Ends with the quotation mark that begins the string."""
        _require((yield from _solid()) == "{")
        while True:
            key, _ = yield from _value((yield from _solid()))
            _require(key.startswith('"'))
            _require((yield from _solid()) == ":")
            first = yield from _solid()
            if json.loads(key) == INPUT:
                _require(first == '"')
                return
            _, behind = yield from _value(first)
            while not behind or behind in _SPACE:
                behind = yield
            _require(behind == ",")

    # --- what it says ---

    def _decoded(self, text: str) -> str:
        text, place = self._rest + text, 0
        self._rest = ""
        decoded: list[str] = []
        while place < len(text) and not self._is_over:
            if unit := _UNIT.match(text, place):
                place = unit.end()
                decoded.append(self._meant(unit[0]))
            elif _CUT.fullmatch(text, place):
                self._rest = text[place:]
                break
            else:  # no escape of JSON
                decoded += (self._flushed(), "\\")
                place += 1
        return "".join(decoded)

    def _meant(self, unit: str) -> str:
        if unit.startswith("\\u"):
            return self._code(int(unit[2:], 16))
        before = self._flushed()
        if unit == '"':
            self._is_over = True
            return before
        if unit.startswith("\\"):
            unit = _ESCAPES.get(unit[1], unit[1])
        return before + unit

    def _code(self, code: int) -> str:
        high, self._high = self._high, 0
        if high and 0xDC00 <= code < 0xE000:
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        before = _HALF if high else ""
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return before
        return before + (_HALF if 0xDC00 <= code < 0xE000 else chr(code))

    def _flushed(self) -> str:
        high, self._high = self._high, 0
        return _HALF if high else ""


def _solid() -> Generator[None, str, str]:
    """The next character that is no space."""
    while (character := (yield)) in _SPACE:
        pass
    return character


def _value(first: str) -> Generator[None, str, tuple[str, str]]:
    """A value as it was written, and the character behind it where that had to be read."""
    scanner, character, text = JsonScanner(), first, list[str]()
    while (step := scanner.feed(character)) is Step.MORE:
        text.append(character)
        character = yield
    if step is Step.LAST:
        return "".join([*text, character]), ""
    return "".join(text), character


def _require(is_right: bool) -> None:
    if not is_right:
        raise Malformed
