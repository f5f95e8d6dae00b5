"""Numbers and characters are choices of whole ways of writing them."""

import json
from collections.abc import Sequence
from typing import Any

from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import (
    Choice,
    Grammar,
    Repeat,
    any_of,
    concat,
    text,
)

from .json_text import DIGIT, HEX, MULTIBYTE, spaced

QUOTE = text(b'"')


def string(least: int = 0, most: int | None = None) -> Grammar:
    """A string of `least` to `most` characters, in quotes. None: of any length.

    A character is a code point. It stands for itself, in UTF-8, unless it is a quote, a backslash or
    below U+0020; or as an escape: `\\n` and its like, or `\\u` with four hexadecimal digits. Two `\\u`
    of a surrogate pair are one character, and half a pair is none.
    """
    return concat(QUOTE, Repeat(_character(), least, most), QUOTE)


def _character() -> Grammar:
    """One character of a string."""
    plain = any_of(bytes(byte for byte in range(0x20, 0x80) if byte not in b'"\\'))
    escapes: list[Grammar] = [concat(text(b"\\"), text(bytes([byte]))) for byte in b'"\\/bfnrt']
    for first in b"0123456789abcdefABCDEF":
        begun = concat(text(b"\\u"), text(bytes([first])))
        if first not in b"dD":
            escapes.append(concat(begun, HEX, HEX, HEX))
            continue
        escapes.append(concat(begun, any_of(b"01234567"), HEX, HEX))
        low = concat(text(b"\\u"), any_of(b"Dd"), any_of(b"FEDCfedc"), HEX, HEX)
        escapes.append(concat(begun, any_of(b"89ABab"), HEX, HEX, low))
    return Choice((MULTIBYTE, *escapes, plain))


def integer() -> Grammar:
    """An integer: perhaps a minus, then digits without a leading zero. 0 and -0 are integers."""
    positive = Choice((text(b"0"), concat(any_of(b"123456789"), Repeat(DIGIT, 0, None))))
    return Choice((positive, concat(text(b"-"), positive)))


def number() -> Grammar:
    """A number: an integer, then perhaps a fraction, then perhaps an exponent, each with a digit at
    least. The exponent begins with e or E, and may have a sign."""
    digits = concat(DIGIT, Repeat(DIGIT, 0, None))
    fraction = concat(text(b"."), digits)
    exponent = Choice(
        tuple(
            concat(text(mark + sign), digits) for mark in (b"e", b"E") for sign in (b"", b"+", b"-")
        )
    )
    behind = (concat(), fraction, exponent, concat(fraction, exponent))
    return concat(integer(), Choice(behind))


def constant(value: Any) -> Grammar:
    """Exactly this value of JSON: strings and numbers as `json.dumps(value, ensure_ascii=False)` writes
    them, whitespace between the tokens of a list or of an object.

    Raises UnsupportedSchemaError("const") for what JSON cannot write: NaN, an infinity, half a
    surrogate pair.
    """
    if isinstance(value, list):
        return enclosed(b"[", [constant(item) for item in value], b"]")
    if isinstance(value, dict):
        pairs = [spaced(constant(k), text(b":"), constant(v)) for k, v in value.items()]
        return enclosed(b"{", pairs, b"}")
    try:
        return text(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:
        raise UnsupportedSchemaError("const") from error


def enclosed(begin: bytes, items: Sequence[Grammar], end: bytes) -> Grammar:
    """The items in a row, commas between them and brackets around them."""
    parts: list[Grammar] = [text(begin)]
    for index, item in enumerate(items):
        parts += [item] if index == 0 else [text(b","), item]
    return spaced(*parts, text(end))
