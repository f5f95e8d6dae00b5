"""Where a JSON value ends, one character at a time, however long or deep it is."""

import re
from enum import Enum, auto

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SPACE = " \t\n\r"
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_CLOSING = {"{": "}", "[": "]"}


class Malformed(Exception):
    """The character that came last cannot stand there."""


class Step(Enum):
    """What a character was: MORE must follow, it was the LAST one, or the value was OVER before it."""

    MORE = auto()
    LAST = auto()
    OVER = auto()


class _Place(Enum):
    VALUE = auto()  # a value must begin
    ITEM_OR_END = auto()  # of an array that was just opened
    KEY_OR_END = auto()  # of an object that was just opened
    KEY = auto()
    COLON = auto()
    AFTER = auto()  # a value inside something: a comma, or the end of that
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    WORD = auto()
    NUMBER = auto()


class JsonScanner:
    """Reads one value (RFC 8259), beginning with its first character."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._place = _Place.VALUE
        self._is_key = False
        self._rest = ""  # of a literal
        self._hex_left = 0
        self._number: list[str] = []  # its characters

    @property
    def is_in_string(self) -> bool:
        """Whether a string has begun that may go on with any character but `"`, `\\` and controls."""
        return self._place is _Place.STRING

    def feed(self, character: str) -> Step:
        """One more character. Raises Malformed if no JSON value goes on so."""
        match self._place:
            case _Place.STRING:
                return self._in_string(character)
            case _Place.ESCAPE:
                return self._escaped(character)
            case _Place.HEX:
                _require(character in "0123456789abcdefABCDEF")
                self._hex_left -= 1
                self._place = _Place.HEX if self._hex_left else _Place.STRING
                return Step.MORE
            case _Place.WORD:
                _require(character == self._rest[0])
                self._rest = self._rest[1:]
                return Step.MORE if self._rest else self._ended()
            case _Place.NUMBER:
                return self._in_number(character)
            case _ if character in _SPACE:
                return Step.MORE
            case _:
                return self._structure(character)

    def _in_string(self, character: str) -> Step:
        _require(character >= " ")
        if character == "\\":
            self._place = _Place.ESCAPE
        elif character == '"':
            if not self._is_key:
                return self._ended()
            self._is_key, self._place = False, _Place.COLON
        return Step.MORE

    def _escaped(self, character: str) -> Step:
        _require(character in '"\\/bfnrtu')
        self._place = _Place.HEX if character == "u" else _Place.STRING
        self._hex_left = 4
        return Step.MORE

    def _in_number(self, character: str) -> Step:
        if character in "0123456789+-.eE":
            self._number.append(character)
            return Step.MORE
        _require(_NUMBER.fullmatch("".join(self._number)) is not None)
        if self._ended() is Step.LAST:
            return Step.OVER
        return self.feed(character)

    def _structure(self, character: str) -> Step:
        match self._place, character:
            case (_Place.KEY | _Place.KEY_OR_END, '"'):
                self._is_key, self._place = True, _Place.STRING
            case (_Place.COLON, ":"):
                self._place = _Place.VALUE
            case (_Place.AFTER, ","):
                self._place = _Place.KEY if self._open[-1] == "{" else _Place.VALUE
            case (_Place.AFTER | _Place.ITEM_OR_END | _Place.KEY_OR_END, "}" | "]"):
                _require(_CLOSING[self._open.pop()] == character)
                return self._ended()
            case (_Place.VALUE | _Place.ITEM_OR_END, _):
                return self._begin(character)
            case _:
                raise Malformed
        return Step.MORE

    def _begin(self, character: str) -> Step:
        if character in _CLOSING:
            self._open.append(character)
            self._place = _Place.KEY_OR_END if character == "{" else _Place.ITEM_OR_END
        elif character == '"':
            self._place = _Place.STRING
        elif character in _LITERALS:
            self._rest, self._place = _LITERALS[character][1:], _Place.WORD
        else:
            _require(character in "-0123456789")
            self._number, self._place = [character], _Place.NUMBER
        return Step.MORE

    def _ended(self) -> Step:
        self._place = _Place.AFTER
        return Step.MORE if self._open else Step.LAST


def _require(is_right: bool) -> None:
    if not is_right:
        raise Malformed
