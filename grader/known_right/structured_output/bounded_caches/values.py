"""Grammars of values, of which those without parameters are made once."""

import json
from functools import cache
from typing import Any

from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import Choice, Grammar, OneOf, Repeat, any_of, concat, optional, text

from .json_text import DIGIT, HEX, MULTIBYTE, WHITESPACE, spaced

QUOTE = text(b'"')
PLAIN = OneOf(frozenset(range(0x20, 0x80)) - frozenset(b'"\\'))
D = any_of(b"dD")
UNIT = concat(text(b"\\u"), Choice((
    concat(OneOf(HEX.values - frozenset(b"dD")), HEX, HEX, HEX),
    concat(D, any_of(b"01234567"), HEX, HEX),
    concat(D, any_of(b"89abAB"), HEX, HEX, text(b"\\u"), D, any_of(b"cdefCDEF"), HEX, HEX),
)))  # fmt: skip
CHARACTER = Choice((PLAIN, MULTIBYTE, concat(text(b"\\"), any_of(b'"\\/bfnrt')), UNIT))


def string(least: int = 0, most: int | None = None) -> Grammar:
    """A string of `least` to `most` characters, in quotes. None: of any length."""
    return concat(QUOTE, Repeat(CHARACTER, least, most), QUOTE)


@cache
def integer() -> Grammar:
    """An integer: perhaps a minus, then digits without a leading zero."""
    digits = concat(any_of(b"123456789"), Repeat(DIGIT, 0, None))
    return concat(optional(text(b"-")), Choice((digits, text(b"0"))))


@cache
def number() -> Grammar:
    """A number: an integer, then perhaps a fraction, then perhaps an exponent."""
    digits = Repeat(DIGIT, 1, None)
    sign = optional(any_of(b"-+"))
    tail = concat(
        optional(concat(text(b"."), digits)), optional(concat(any_of(b"eE"), sign, digits))
    )
    return concat(integer(), tail)


def constant(value: Any) -> Grammar:
    """Exactly this value of JSON. Raises UnsupportedSchemaError("const") for what JSON cannot write."""
    if isinstance(value, list):
        return enclosed(b"[", [constant(item) for item in value], b"]")
    if isinstance(value, dict):
        return enclosed(b"{", [pair(name, inner) for name, inner in value.items()], b"}")
    try:
        return text(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except ValueError as error:
        raise UnsupportedSchemaError("const") from error


def pair(name: str, value: Any) -> Grammar:
    """A name, a colon and its value."""
    return spaced(constant(name), text(b":"), constant(value))


def enclosed(begin: bytes, items: list[Grammar], end: bytes) -> Grammar:
    """The items in a row, commas between them and brackets around them."""
    parts: list[Grammar] = [text(begin)]
    for item in items:
        comma = [text(b","), WHITESPACE] if len(parts) > 1 else []
        parts += [WHITESPACE, *comma, item]
    return concat(*parts, WHITESPACE, text(end))
