"""Attacks on one version, in processes with limits: an attack that loops, crashes or eats memory is an
outcome, and another process goes on with those that are left."""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.breaking.outcome import Outcome, died
from grader.breaking.worker import AttackOrder
from grader.fair_clock import FairClock
from grader.process import GIB, WorkerProcess
from grader.runner import COMPILERS_GIB
from grader.submission import Submission
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab

POLL_SECONDS = 0.05
PROGRAM = "grader.breaking.worker"
TOO_LONG = "It was still running after"


@dataclass(frozen=True, slots=True)
class Bounds:
    """All seconds are of a FairClock. start: to import and compile the part. file: to import the
    attacks. attack: for each of them. all: for all of them on one version."""

    start: float = 120.0
    file: float = 30.0
    attack: float = 5.0
    all: float = 60.0
    memory_gib: float = 2.0


@dataclass(slots=True)
class Run:
    """What became of the attacks on one version. open: name -> why nothing is known of it."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Heard:
    """What a process has said so far. at: the attack that runs; "" for the file itself, None for the
    start of the part."""

    at: str | None = None
    broken: str = ""
    unreadable: str = ""
    lack: str = ""


Enough = Callable[[str, Outcome], bool]
"""(attack, its outcome): whether nothing more need be known of this version."""


def run_attacks(
    lab: Lab,
    folder: Path,
    file: Path,
    names: Sequence[str],
    *,
    seed: int = 0,
    bounds: Bounds = Bounds(),
    enough: Enough = lambda name, outcome: False,
    stop: threading.Event | None = None,
) -> Run:
    """Run the attacks of a file on the part in a folder. seed: of what is drawn without one.

    Raises ConfigError if the file cannot be run at all, or nothing can be found out on this machine.
    """
    run, left, used = Run(), list(names), 0.0
    stop = stop or threading.Event()
    while left and not stop.is_set():
        heard, finished = _Heard(), threading.Event()
        take = _listener(run, heard, finished, enough)
        order = AttackOrder(
            lab=lab.key,
            folder=str(folder),
            shown_from=str(folder.parent),
            fd=-1,
            seed=seed,
            memory_bytes=int(bounds.memory_gib * GIB) if sys.platform == "linux" else 0,
            cpu_seconds=int(2 * (bounds.start + bounds.all)) + 10,
            file=str(file),
            attacks=left,
        )
        with WorkerProcess(
            order, take, Submission(lab, folder, folder.parent), program=PROGRAM
        ) as worker:
            clock = FairClock(worker.pids)
            death, spent = _watch(worker, heard, clock, bounds, bounds.all - used, finished, stop)
            death = death or worker.end()
        used += spent
        if heard.lack or heard.unreadable:
            raise ConfigError(
                heard.lack or f"the file of attacks cannot be run: {heard.unreadable}"
            )
        if heard.broken:
            run.outcomes |= dict.fromkeys(left, died(f"It cannot be imported: {heard.broken}"))
        left = [name for name in left if name not in run.outcomes]
        if finished.is_set() or not left:
            break
        if heard.at == "":
            raise ConfigError(f"the file of attacks cannot be run: {death}")
        at = heard.at if heard.at in left else left[0]
        left = [name for name in left if name != at]
        if death.startswith(TOO_LONG) and clock.is_starved:  # it may be the machine's fault
            run.open[at] = f"{death} Other programs keep the machine busy: run it again."
        else:
            run.outcomes[at] = died(death)
            if enough(at, run.outcomes[at]):
                break
        if used >= bounds.all:
            why = f"It was not reached: the attacks before it took {bounds.all:g} seconds."
            run.open |= dict.fromkeys(left, why)
            break
    return run


def _listener(
    run: Run, heard: _Heard, finished: threading.Event, enough: Enough
) -> Callable[[dict[str, Any]], None]:
    def take(event: dict[str, Any]) -> None:
        match event:
            case {"event": "attack", "name": str(name)}:
                heard.at = name
            case {"event": "outcome", "name": str(name), "outcome": dict(outcome)}:
                run.outcomes[name] = outcome
                if enough(name, outcome):
                    finished.set()
            case {"event": "broken", "sentence": str(why)}:
                heard.broken = why
            case {"event": "unreadable", "sentence": str(why)}:
                heard.unreadable = why
            case {"event": "lack", "sentence": str(why)}:
                heard.lack = why

    return take


def _watch(
    worker: WorkerProcess,
    heard: _Heard,
    clock: FairClock,
    bounds: Bounds,
    left: float,
    finished: threading.Event,
    stop: threading.Event,
) -> tuple[str, float]:
    """Wait for the end. Returns (why the process must be ended, "" if it has ended itself; seconds that
    the attacks took)."""
    at, began, first = heard.at, 0.0, 0.0
    while not worker.wait(POLL_SECONDS):
        clock.look()
        used = clock.used
        if heard.at != at:
            first = first if at else used
            at, began = heard.at, used
        patience = bounds.start if at is None else bounds.attack if at else bounds.file
        spent = used - first if at else 0.0
        if stop.is_set() or finished.is_set():
            return "It was stopped.", spent
        if used - began > patience or spent > left:
            return f"{TOO_LONG} {min(patience, left):g} seconds.", spent
        # Compilers run several at once, and are not the part.
        if excess := worker.excess(bounds.memory_gib + (COMPILERS_GIB if at is None else 0)):
            return excess, spent
    return "", clock.used - first if at else 0.0
