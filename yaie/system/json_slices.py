"""Writes large JSON in slices: between two of them other threads have their turn.

`json.dumps` holds the GIL until it is done. For an answer of 80 MB that is a second in which no stream
gets its next token, and the objects that it is made from take a gigabyte.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from yaie.system.gc_tuning import few_collections, give_back_memory
from yaie.system.thread_niceness import step_back

SLICE = 32
"""Elements of a list that are written at once: some 50 kB of log-probabilities, half a millisecond."""
SCALARS = 1024
"""The same of a list of numbers or strings."""
DEPTH = 6
"""Levels that are looked into. What lies deeper is written whole."""
FEW = 8
PART = 1 << 18
"""Bytes of a part of the text."""
TURN, PAUSE = 0.002, 0.0005
"""Seconds of work, and of rest after it. A thread that gives up the GIL for no time takes it again at
once."""

MANY = 1000
"""Objects that take longer to free than others should wait."""

_writer = ThreadPoolExecutor(1, "yaie-answers", step_back)
"""One for all large answers: they take turns, and hold up none but each other. PyTorch's threads wait
for each other many times a step: another one that takes their cores makes it several times as long."""


class Rows:
    """A list of an answer whose elements are made as it is written, once."""

    def __init__(self, items: list[Any], make: Callable[[list[Any]], list[Any]]) -> None:
        """items: what the elements are made of; emptied. make: the elements of a slice of them."""
        self._items = items
        self._make = make

    def __del__(self) -> None:
        free([self._items])

    def slices(self) -> Iterator[list[Any]]:
        """The elements, some at a time."""
        self._items.reverse()
        while self._items:
            items = self._items[-SLICE:]
            del self._items[-SLICE:]
            yield self._make(items[::-1])


class Turns:
    """Long work in Python calls `rest` often: it waits for a moment once its turn was long enough."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def rest(self) -> bool:
        """Whether it waited."""
        if time.perf_counter() - self._began < TURN:
            return False
        time.sleep(PAUSE)
        self._began = time.perf_counter()
        return True


def free(lists: list[list[Any]]) -> None:
    """Empty lists that have no other owner, large ones beside the event loop: a million objects take as
    long as ten tokens."""
    if sum(map(len, lists)) < MANY:
        return
    with contextlib.suppress(RuntimeError):  # the interpreter ends
        _writer.submit(_free, lists)


def tidy_up() -> None:
    """Return the memory of a large answer to the system, once it is sent."""
    with contextlib.suppress(RuntimeError):
        _writer.submit(give_back_memory)


def _free(lists: list[list[Any]]) -> None:
    turns = Turns()
    for items in lists:
        while items:
            del items[-SLICE:]
            turns.rest()


async def written(make: Callable[[], Any]) -> list[bytes]:
    """What `make` returns as JSON in UTF-8, in parts; it may hold Rows. Both are done beside the event
    loop, and given up if the caller is cancelled.

    Raises what `make` does, and ValueError for NaN and infinity.
    """
    has_left = threading.Event()
    try:
        return await asyncio.wrap_future(_writer.submit(_parts, make, has_left))
    finally:
        has_left.set()


def _parts(make: Callable[[], Any], has_left: threading.Event) -> list[bytes]:
    done: list[bytes] = []
    part = bytearray()
    turns = Turns()
    with few_collections():
        for text in _slices(make(), 0):
            part += text.encode()
            if len(part) >= PART:
                done.append(bytes(part))
                part.clear()
            if turns.rest() and has_left.is_set():
                return []
    return [*done, bytes(part)]


def dumps(value: Any) -> str:
    """A value as JSON, without spaces. Raises ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _slices(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Rows):
        yield from _listed(map(dumps, value.slices()))
    elif isinstance(value, dict) and depth < DEPTH:
        for index, (key, item) in enumerate(value.items()):
            yield ("," if index else "{") + dumps(key) + ":"
            yield from _slices(item, depth + 1)
        yield "}" if value else "{}"
    elif isinstance(value, list) and value and depth < DEPTH:
        are_scalars = not isinstance(value[0], dict | list)
        if are_scalars or (len(value) > FEW and depth >= 3):
            size = SCALARS if are_scalars else SLICE
            starts = range(0, len(value), size)
            yield from _listed(dumps(value[start : start + size]) for start in starts)
            return
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _slices(item, depth + 1)
        yield "]"
    else:
        yield dumps(value)


def _listed(lists: Iterator[str]) -> Iterator[str]:
    """One list of the elements of several, none of them empty."""
    has_begun = False
    for text in lists:
        yield ("," if has_begun else "[") + text[1:-1]
        has_begun = True
    yield "]" if has_begun else "[]"
