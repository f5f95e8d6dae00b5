"""Orders carried out in copies of one warm process, a few at once; each copy is watched and killed.

`farm.py` grades submissions so, and `tests/mutants` runs the tests on mutants of the engine.
"""

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from yaie.system.child import end_with

DEVNULL = os.open(os.devnull, os.O_RDWR)
MOST_TOLD = 2**26
"""Bytes of events that a copy may emit; what it runs may write there, too."""
END = "end"
"""The event that says that an order was carried out to its end."""

Event = dict[str, Any]
Emit = Callable[[Event], None]


class Order(Protocol):
    """seconds: after which the copy is killed."""

    @property
    def seconds(self) -> float: ...


Work = Callable[[Any, Emit, int], None]
"""Carries out an order in the copy and emits what there is to tell; also given the number of its slot,
which no other copy has at the same time."""


@dataclass(frozen=True, slots=True)
class Done:
    """slot: in which nothing runs any more. events: what was emitted, in order. problem: "out of time",
    "told too much", "the process died", or ""."""

    order: Any
    slot: int
    events: list[Event]
    problem: str
    seconds: float


@dataclass(slots=True)
class _Child:
    order: Any
    slot: int
    pid: int
    pipe: int
    began: float
    received: bytearray = field(default_factory=bytearray)


def run_forked(
    orders: Iterable[Order], slots: int, work: Work, extra_address_space: int
) -> Iterator[Done]:
    """What became of each order, as they end. At most `slots` copies at once.

    extra_address_space: bytes that a copy may map beyond what this process has.
    """
    waiting = list(reversed(list(orders)))
    free = list(reversed(range(slots)))
    children: dict[int, _Child] = {}
    try:
        while waiting or children:
            while waiting and free:
                child = _start(waiting.pop(), free.pop(), work, extra_address_space)
                children[child.pipe] = child
            for child, problem in _ended(children):
                done = _reap(children.pop(child.pipe), problem)
                free.append(child.slot)
                yield done
    finally:  # of orders that are not wanted any more
        for child in children.values():
            _reap(child, "")


def _ended(children: dict[int, _Child]) -> list[tuple[_Child, str]]:
    """Those that have ended since, or have to now, each with the problem; after a moment at most."""
    ready, _, _ = select.select(list(children), [], [], 0.2)
    ended = []
    for pipe in ready:
        if data := os.read(pipe, 65_536):
            children[pipe].received += data
            if len(children[pipe].received) > MOST_TOLD:
                ended.append((children[pipe], "told too much"))
        else:
            ended.append((children[pipe], ""))
    late = (c for c in children.values() if time.monotonic() - c.began > c.order.seconds)
    over = [child.pipe for child, _ in ended]
    return ended + [(child, "out of time") for child in late if child.pipe not in over]


def _start(order: Order, slot: int, work: Work, extra_address_space: int) -> _Child:
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            end_with(parent)
            _work_in_child(order, slot, work, extra_address_space, writing)
        finally:
            os._exit(0)
    os.close(writing)
    return _Child(order, slot, pid, reading, time.monotonic())


def _work_in_child(
    order: Order, slot: int, work: Work, extra_address_space: int, pipe: int
) -> None:
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(DEVNULL, stream)
    _limit_address_space(extra_address_space)

    def emit(event: Event) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    work(order, emit, slot)
    emit({"event": END})


def _limit_address_space(extra: int) -> None:
    """What this process has mapped already, and some more."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra, mapped + extra))


def _reap(child: _Child, problem: str) -> Done:
    _kill(child.pid)
    os.waitpid(child.pid, 0)
    os.close(child.pipe)
    events: list[Event] = []
    for line in bytes(child.received).splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # cut short by the end of its writer
            continue
    has_ended = any(event["event"] == END for event in events)
    if not has_ended and not problem:
        problem = "the process died"
    seconds = round(time.monotonic() - child.began, 3)
    return Done(child.order, child.slot, events, problem, seconds)


def _kill(pid: int) -> None:
    """The child and whatever it has started; it may be gone already."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
