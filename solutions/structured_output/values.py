"""Grammars of single values: strings, numbers and constants. `schema.py` puts them together."""

import json
from collections.abc import Sequence
from typing import Any

from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import (
    Choice,
    Grammar,
    Repeat,
    any_of,
    between,
    concat,
    optional,
    text,
)

from .json_text import DIGIT, HEX, MULTIBYTE, spaced

QUOTE = text(b'"')


# ANCHOR: string
def string(least: int = 0, most: int | None = None) -> Grammar:
    """A string of `least` to `most` characters, in quotes. None: of any length.

    A character is a code point. It stands for itself, in UTF-8, unless it is a quote, a backslash or
    below U+0020; or as an escape: `\\n` and its like, or `\\u` with four hexadecimal digits. Two `\\u`
    of a surrogate pair are one character, and half a pair is none.
    """
    # BEGIN SOLUTION 21.1
    return concat(QUOTE, Repeat(_character(), least, most), QUOTE)
    # END SOLUTION


def _character() -> Grammar:
    """One character of a string."""
    # BEGIN SOLUTION 21.1
    plain = any_of(bytes(set(range(0x20, 0x80)) - {ord('"'), ord("\\")}))
    short = concat(text(b"\\"), any_of(b'"\\/bfnrt'))
    high = concat(any_of(b"dD"), any_of(b"89abAB"), HEX, HEX)
    low = concat(any_of(b"dD"), any_of(b"cdefCDEF"), HEX, HEX)
    units = [
        concat(any_of(b"0123456789abcefABCEF"), HEX, HEX, HEX),
        concat(any_of(b"dD"), between(ord("0"), ord("7")), HEX, HEX),
        concat(high, text(b"\\u"), low),
    ]
    return Choice((plain, MULTIBYTE, short, concat(text(b"\\u"), Choice(tuple(units)))))
    # END SOLUTION


# ANCHOR_END: string


# ANCHOR: number
def integer() -> Grammar:
    """An integer: perhaps a minus, then digits without a leading zero. 0 and -0 are integers."""
    # BEGIN SOLUTION 21.1
    digits = concat(between(ord("1"), ord("9")), Repeat(DIGIT, 0, None))
    return concat(optional(text(b"-")), Choice((text(b"0"), digits)))
    # END SOLUTION


def number() -> Grammar:
    """A number: an integer, then perhaps a fraction, then perhaps an exponent, each with a digit at
    least. The exponent begins with e or E, and may have a sign."""
    # BEGIN SOLUTION 21.1
    fraction = concat(text(b"."), Repeat(DIGIT, 1, None))
    exponent = concat(any_of(b"eE"), optional(any_of(b"+-")), Repeat(DIGIT, 1, None))
    return concat(integer(), optional(fraction), optional(exponent))
    # END SOLUTION


# ANCHOR_END: number


# ANCHOR: constant
def constant(value: Any) -> Grammar:
    """Exactly this value of JSON: strings and numbers as `json.dumps(value, ensure_ascii=False)` writes
    them, whitespace between the tokens of a list or of an object.

    Raises UnsupportedSchemaError("const") for what JSON cannot write: NaN, an infinity, half a
    surrogate pair.
    """
    # BEGIN SOLUTION 21.1
    if isinstance(value, list):
        return enclosed(b"[", [constant(item) for item in value], b"]")
    if isinstance(value, dict):
        pairs = [spaced(constant(k), text(b":"), constant(v)) for k, v in value.items()]
        return enclosed(b"{", pairs, b"}")
    try:
        return text(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:
        raise UnsupportedSchemaError("const") from error
    # END SOLUTION


def enclosed(begin: bytes, items: Sequence[Grammar], end: bytes) -> Grammar:
    """The items in a row, commas between them and brackets around them."""
    parts: list[Grammar] = [text(begin)]
    for index, item in enumerate(items):
        parts += [item] if index == 0 else [text(b","), item]
    return spaced(*parts, text(end))


# ANCHOR_END: constant
