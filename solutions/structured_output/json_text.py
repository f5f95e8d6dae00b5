"""The letters of JSON: whitespace, digits, and characters in UTF-8."""

from yaie.core.grammar import (
    Concat,
    Grammar,
    Repeat,
    any_of,
    between,
    choice,
    concat,
    optional,
    text,
)

# ANCHOR: whitespace
WHITESPACE = choice(
    [
        Repeat(text(b" "), 0, 2),
        concat(optional(text(b"\r")), text(b"\n"), Repeat(any_of(b" \t"), 0, 64)),
    ]
)
"""Between two tokens of JSON. Bounded: a small model may otherwise write nothing but blanks."""


def spaced(*parts: Grammar) -> Concat:
    """The parts in a row, with whitespace between each two of them."""
    spaces = [piece for part in parts for piece in (WHITESPACE, part)]
    return Concat(tuple(spaces[1:]))


# ANCHOR_END: whitespace

DIGIT = between(ord("0"), ord("9"))
HEX = any_of(b"0123456789abcdefABCDEF")

_TAIL = between(0x80, 0xBF)
# ANCHOR: utf8
MULTIBYTE = choice(
    [
        concat(between(0xC2, 0xDF), _TAIL),
        concat(between(0xE0, 0xE0), between(0xA0, 0xBF), _TAIL),
        concat(any_of(bytes(range(0xE1, 0xED)) + b"\xee\xef"), _TAIL, _TAIL),
        concat(between(0xED, 0xED), between(0x80, 0x9F), _TAIL),
        concat(between(0xF0, 0xF0), between(0x90, 0xBF), _TAIL, _TAIL),
        concat(between(0xF1, 0xF3), _TAIL, _TAIL, _TAIL),
        concat(between(0xF4, 0xF4), between(0x80, 0x8F), _TAIL, _TAIL),
    ]
)
"""One character from U+0080 on in UTF-8 (RFC 3629): no surrogates, no longer than it need be."""
# ANCHOR_END: utf8
