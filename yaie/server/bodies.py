"""What a body holds, before it is parsed: what would take too long, or too deep a stack, is refused.

No loop of Python's own runs over single bytes: that would hold up all other requests for seconds.
"""

import json
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

MAX_DEPTH = 256
"""Levels of nesting in a body. What works on JSON calls itself for each, and Python's stack ends."""
MAX_VALUES = 1 << 19
"""Elements of lists and objects in a body, about. Reading five million takes most of a second, in which
nothing else runs; no context holds half a million tokens that are sent as numbers."""
MAX_NAMES = 1 << 15
"""Fields of all objects in a body. Each that is not known is an error of its own, half a million took
more than a second; the most messages that there may be (4,096) have eight each."""

_BRACKET_STEPS = np.zeros(256, dtype=np.int8)
_BRACKET_STEPS[list(b"[{")] = 1
_BRACKET_STEPS[list(b"]}")] = -1
_PIECE = 1 << 16


def looked_through(chunks: list[bytes]) -> tuple[bytes, str | None]:
    """A body, of which `chunks` are emptied, and why it is refused."""
    body = b"".join(chunks)
    chunks.clear()
    return body, _refusal(body)


def _refusal(body: bytes) -> str | None:
    """Why a body is not even read; None if it is."""
    if is_too_deep(body):
        return f"The body is nested too deeply: more than {MAX_DEPTH} levels."
    if has_more(body, b",", MAX_VALUES):
        return f"The body holds more than {MAX_VALUES} values. Send text in the place of token ids."
    if has_more(body, b":", MAX_NAMES):
        return f"The body's objects have more than {MAX_NAMES} fields in all."
    return None


def has_more(body: bytes, mark: bytes, most: int) -> bool:
    """Whether a mark stands outside of strings more than so many times."""
    if not _is_more(_counts(_pieces(body), mark), most):
        return False
    return _is_more(_counts(_outside_strings(body), mark), most)


def _counts(pieces: Iterator[NDArray[np.uint8]], mark: bytes) -> Iterator[int]:
    return (int(np.count_nonzero(piece == ord(mark))) for piece in pieces)


def _is_more(counts: Iterator[int], most: int) -> bool:
    """Whether they add up to more than `most`. Stops as soon as it knows."""
    return any(count > most for count in accumulate(counts))


def _outside_strings(body: bytes) -> Iterator[NDArray[np.uint8]]:
    """What lies outside of strings, piece by piece."""
    num_quotes = 0
    for piece in _pieces(body.replace(rb"\\", b"").replace(rb"\"", b"")):
        quotes = num_quotes + np.cumsum(piece == ord('"'), dtype=np.int32)
        yield piece[quotes % 2 == 0]
        num_quotes = int(quotes[-1]) % 2


def _pieces(text: bytes) -> Iterator[NDArray[np.uint8]]:
    codes = np.frombuffer(text, dtype=np.uint8)
    return (codes[start : start + _PIECE] for start in range(0, len(codes), _PIECE))


def is_too_deep(body: bytes) -> bool:
    """Whether JSON is nested more than MAX_DEPTH levels.

    Of what is no JSON it only says that it opens more than it closes; then the parser will not get far.
    """
    # Both opening brackets are one bit apart. `bytes.count` would keep the GIL, and takes longer.
    brackets = (int(np.count_nonzero((piece | 0x20) == ord("{"))) for piece in _pieces(body))
    if not _is_more(brackets, MAX_DEPTH):
        return False
    encoding = json.detect_encoding(body)
    if not encoding.startswith(
        "utf-8"
    ):  # the parser takes UTF-16 too, whose bytes may look like quotes
        body = body.decode(encoding, "replace").encode("utf-8", "replace")
    depth = 0
    for piece in _outside_strings(body):
        depths = depth + np.cumsum(_BRACKET_STEPS[piece], dtype=np.int32)
        if depths.max(initial=0) > MAX_DEPTH:
            return True
        depth = int(depths[-1]) if len(depths) else depth
    return False
