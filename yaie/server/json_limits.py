"""What JSON may hold, counted before it is parsed: what would take too long, or too deep a stack.

It holds for the body of a request, and for JSON that is a string in one. No loop of Python's own runs
over single bytes, and nothing keeps the GIL for longer than one piece takes.
"""

import codecs
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_DEPTH = 256
"""Levels of nesting. What works on JSON calls itself for each, and Python's stack ends."""
MAX_VALUES = 1 << 16
"""Elements of lists and objects, about, where nobody sends token ids: the longest conversation (4,096
messages) has 32,768. What makes a prompt of it visits each, on the event loop."""
MAX_TOKEN_IDS = 1 << 19
"""The same where prompts may be token ids. No context holds half a million."""
MAX_NAMES = 1 << 15
"""Fields of all objects. Each that is not known is an error of its own, half a million took more than a
second; the most messages that there may be have eight each."""
TAKE_TOKEN_IDS = frozenset({"/v1/completions", "/v1/embeddings", "/detokenize", "/web/next_token"})
"""Paths whose prompts may be lists of numbers."""

_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_PIECE = 1 << 16
_SHORT = 1 << 12
_BACKSLASH = b"\\"


@dataclass(slots=True)
class Counts:
    """What has been seen of a text so far. depth: the deepest level. values: commas. names: colons."""

    depth: int = 0
    values: int = 0
    names: int = 0

    def too_many(self, most_values: int = MAX_VALUES) -> str | None:
        """What there is too much of, in words that follow "JSON"; None if there is not."""
        if self.depth > MAX_DEPTH:
            return f"nested too deeply: more than {MAX_DEPTH} levels"
        if self.values > most_values:
            return f"of more than {most_values} values"
        if self.names > MAX_NAMES:
            return f"whose objects have more than {MAX_NAMES} fields in all"
        return None


def looked_through(chunks: list[bytes], path: str) -> str | None:
    """Why a body is refused; None if it is not. `chunks` are joined: one is left, of all."""
    chunks[:] = [b"".join(chunks)]
    return refused_at(chunks[0], path)


def refused_at(body: bytes, path: str) -> str | None:
    """Why a body is refused that is sent to this path; None if it is not."""
    return refusal(body, MAX_TOKEN_IDS if path in TAKE_TOKEN_IDS else MAX_VALUES)


def refusal(body: bytes, most_values: int = MAX_VALUES) -> str | None:
    """Why a body is not even read; None if it is. Of what is no JSON it may say nothing."""
    if (encoding := _other_encoding(body)) is not None:
        return f"The body is not in UTF-8 ({encoding}). JSON must be sent in UTF-8."
    if (found := too_many([body], most_values)) is None:
        return None
    tip = " Send text in the place of token ids." if "values" in found else ""
    return f"The body is JSON {found}.{tip}"


def too_many(texts: Iterable[bytes], most_values: int = MAX_VALUES) -> str | None:
    """What there is too much of in some texts of JSON together; see `Counts.too_many`."""
    texts = list(texts)
    rough = [_at_most(text) for text in texts]
    together = Counts(
        values=sum(counts.values for counts in rough), names=sum(counts.names for counts in rough)
    )
    if together.too_many(most_values) is None:
        texts = [
            text for text, counts in zip(texts, rough, strict=True) if counts.depth > MAX_DEPTH
        ]
    counts = Counts()
    for text in texts:
        for _ in _counted(text, counts):
            if (found := counts.too_many(most_values)) is not None:
                return found  # whatever comes behind it
    return None


def _at_most(text: bytes) -> Counts:
    """What there would be if no string held any of it."""
    if len(text) <= _SHORT:  # of which there may be thousands
        depth = text.count(b"[") + text.count(b"{")
        return Counts(depth, text.count(b","), text.count(b":"))
    counts = Counts()
    for piece in _pieces(text):
        # Both opening brackets are one bit apart. `bytes.count` would keep the GIL.
        counts.depth += int(np.count_nonzero((piece | 0x20) == ord("{")))
        counts.values += int(np.count_nonzero(piece == ord(",")))
        counts.names += int(np.count_nonzero(piece == ord(":")))
    return counts


def _counted(text: bytes, counts: Counts) -> Iterator[None]:
    """Add what lies outside of strings to the counts, a piece at a time."""
    depth = 0
    for piece in _outside_strings(text):
        depths = depth + np.cumsum(_STEPS[piece], dtype=np.int32)
        counts.depth = max(counts.depth, int(depths.max(initial=0)))
        counts.values += int(np.count_nonzero(piece == ord(",")))
        counts.names += int(np.count_nonzero(piece == ord(":")))
        depth = int(depths[-1]) if len(depths) else depth
        yield


def _outside_strings(text: bytes) -> Iterator[NDArray[np.uint8]]:
    """What lies outside of strings, piece by piece."""
    num_quotes = 0
    for piece in _unescaped(text):
        quotes = num_quotes + np.cumsum(piece == ord('"'), dtype=np.int32)
        yield piece[quotes % 2 == 0]
        num_quotes = int(quotes[-1]) % 2 if len(quotes) else num_quotes


def _unescaped(text: bytes) -> Iterator[NDArray[np.uint8]]:
    """The text without escaped quotes and backslashes."""
    rest = b""
    for start in range(0, len(text), _PIECE):
        piece = rest + text[start : start + _PIECE]
        # An odd backslash at the end escapes what the next piece begins with.
        odd = (len(piece) - len(piece.rstrip(_BACKSLASH))) % 2
        piece, rest = (piece[:-1], _BACKSLASH) if odd else (piece, b"")
        yield np.frombuffer(piece.replace(rb"\\", b"").replace(rb"\"", b""), dtype=np.uint8)


def _pieces(text: bytes) -> Iterator[NDArray[np.uint8]]:
    codes = np.frombuffer(text, dtype=np.uint8)
    return (codes[start : start + _PIECE] for start in range(0, len(codes), _PIECE))


def _other_encoding(body: bytes) -> str | None:
    """What a body is written in if not in UTF-8: its name, or the place of the first byte that is wrong.

    Python's parser takes UTF-16 and UTF-32 too, in whose bytes nothing above could be counted."""
    encoding = json.detect_encoding(body[:4])
    if not encoding.startswith("utf-8"):
        return f"it is {encoding.upper()}"
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _PIECE):
        try:
            decoder.decode(body[start : start + _PIECE], start + _PIECE >= len(body))
        except UnicodeDecodeError as error:
            known = len(error.object) - len(body[start : start + _PIECE])  # of the piece before
            return f"byte {start - known + error.start} does not belong to any character"
    return None
