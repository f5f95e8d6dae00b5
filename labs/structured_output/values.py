# Lab 21, your part: task 21.1. The rest is given.
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
    # TODO 21.1: your code here (the reference: 1 line).
    raise NotImplementedError(
        "structured_output task 21.1: not implemented yet; see chapter Structured output"
    )


def _character() -> Grammar:
    """One character of a string."""
    # TODO 21.1: your code here (the reference: 10 lines).
    raise NotImplementedError(
        "structured_output task 21.1: not implemented yet; see chapter Structured output"
    )


# ANCHOR_END: string


# ANCHOR: number
def integer() -> Grammar:
    """An integer: perhaps a minus, then digits without a leading zero. 0 and -0 are integers."""
    # TODO 21.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "structured_output task 21.1: not implemented yet; see chapter Structured output"
    )


def number() -> Grammar:
    """A number: an integer, then perhaps a fraction, then perhaps an exponent, each with a digit at
    least. The exponent begins with e or E, and may have a sign."""
    # TODO 21.1: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "structured_output task 21.1: not implemented yet; see chapter Structured output"
    )


# ANCHOR_END: number


# ANCHOR: constant
def constant(value: Any) -> Grammar:
    """Exactly this value of JSON: strings and numbers as `json.dumps(value, ensure_ascii=False)` writes
    them, whitespace between the tokens of a list or of an object.

    Raises UnsupportedSchemaError("const") for what JSON cannot write: NaN, an infinity, half a
    surrogate pair.
    """
    # TODO 21.1: your code here (the reference: 9 lines).
    raise NotImplementedError(
        "structured_output task 21.1: not implemented yet; see chapter Structured output"
    )


def enclosed(begin: bytes, items: Sequence[Grammar], end: bytes) -> Grammar:
    """The items in a row, commas between them and brackets around them."""
    parts: list[Grammar] = [text(begin)]
    for index, item in enumerate(items):
        parts += [item] if index == 0 else [text(b","), item]
    return spaced(*parts, text(end))


# ANCHOR_END: constant
