"""Lab 17: two steps in flight, drawn by the clock of the loop itself.

The loop's own order of calls is recorded: when it sends a step, and when it reads a result. The same
clock then runs for both loops: a step takes the device DEVICE units, and a call the host one. So the
picture is the same on every machine; what was measured on this one stands below it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from yaie.core.contracts import StepHandle, Worker
from yaie.core.params import SamplingParams
from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, row, same
from yaie.demos.subject import Subject

QUESTION = "Why is decode slow?"
GREEDY = SamplingParams(temperature=0, max_tokens=24)
DEVICE, HOST = 3, 1
"""Units that a step takes the device, and a call to send it or to read its result takes the host."""
WIDTH = 64
SEND, READ = "s", "r"


@dataclass(slots=True)
class Calls:
    """What a loop did, in order: (SEND or READ, number of the step). seconds: from first to last."""

    made: list[tuple[str, int]] = field(default_factory=list)
    sent: int = 0
    seconds: float = 0.0

    @property
    def most_in_flight(self) -> int:
        """Steps that were sent and not read, at the most."""
        most = in_flight = 0
        for kind, _ in self.made:
            in_flight += 1 if kind == SEND else -1
            most = max(most, in_flight)
        return most


class _Noted:
    """A StepHandle that notes when its result is read."""

    def __init__(self, handle: StepHandle, calls: Calls, number: int) -> None:
        self._handle = handle
        self._calls = calls
        self._number = number

    def mask(self, masks: StepMasks) -> None:
        self._handle.mask(masks)

    def result(self) -> StepResult:
        result = self._handle.result()
        self._calls.made.append((READ, self._number))
        return result


@dataclass(slots=True)
class Clock:
    """Who was busy when. host, device: a character for each unit. idle: units of the device between its
    first step and its last. units: to the end."""

    host: str
    device: str
    idle: int
    units: int


def show(subject: Subject) -> Shown:
    """One answer by lab 7's loop, and by this lab's."""
    (plain, before), (mine, after) = (_answer(subject, overlap) for overlap in ("off", "on"))
    clocks = [timed(calls.made) for calls in (before, after)]
    equal = same(plain.token_ids, mine.token_ids)
    tokens = len(mine.token_ids[0])
    each = [clock.units / max(1, tokens) for clock in clocks]
    return Shown(
        f"One answer. A step takes the device {DEVICE} units of time, a call (s: send, r: read) the "
        f"host {HOST}.",
        ("overlap off", "overlap on"),
        (
            row("steps in flight, at most", before.most_in_flight, after.most_in_flight),
            row("steps sent", before.sent, after.sent),
            row("units to the end", *(clock.units for clock in clocks)),
            row("units in which the device idles", *(clock.idle for clock in clocks)),
            row("measured here", *(f"{_ms(c, tokens):.1f} ms a token" for c in (before, after))),
            row("the answer", "", equal),
        ),
        f"With {after.most_in_flight} steps in flight a token takes {each[1]:.1f} units in place of "
        f"{each[0]:.1f}, and the device idles for {clocks[1].idle} in place of {clocks[0].idle}.",
        tuple(
            line
            for name, clock in zip(("off", "on"), clocks, strict=True)
            for line in (
                f"{name:<4}host    {clock.host[:WIDTH]}",
                f"    device  {clock.device[:WIDTH]}",
            )
        ),
    )


def _ms(calls: Calls, tokens: int) -> float:
    return 1e3 * calls.seconds / max(1, tokens)


def _answer(subject: Subject, overlap: str) -> tuple[Run, Calls]:
    with subject.engine(overlap=overlap) as engine:
        with _noted(engine.machine_parts.worker) as calls:
            done = run(engine, [ask(engine, QUESTION)], GREEDY)
        return done, calls


@contextmanager
def _noted(worker: Worker) -> Iterator[Calls]:
    """The calls that a loop makes to this worker within the block."""
    calls, execute, begin = Calls(), worker.execute, time.perf_counter()

    def noted(step: StepInput) -> StepHandle:
        number = calls.sent
        calls.sent += 1
        handle = execute(step)
        calls.made.append((SEND, number))
        return _Noted(handle, calls, number)

    setattr(worker, "execute", noted)  # noqa: B010, a method of this one object
    try:
        yield calls
    finally:
        delattr(worker, "execute")
        calls.seconds = time.perf_counter() - begin


def timed(made: Sequence[tuple[str, int]]) -> Clock:
    """What these calls come to if each takes the host and each step the device the same time."""
    now = free = 0
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    host: dict[int, str] = {}
    for kind, number in made:
        if kind == READ:
            now = max(now, ends[number])
        host.update(dict.fromkeys(range(now, now + HOST), kind))
        now += HOST
        if kind == SEND:
            begins[number] = max(now, free)
            free = ends[number] = begins[number] + DEVICE
    units = max(now, free)
    device = {at: str(n % 10) for n, begin in begins.items() for at in range(begin, ends[n])}
    first = min(begins.values(), default=0)
    idle = free - first - len(device)
    return Clock(_line(host, ".", units), _line(device, " ", units), idle, units)


def _line(drawn: dict[int, str], blank: str, units: int) -> str:
    return "".join(drawn.get(at, blank) for at in range(units))
