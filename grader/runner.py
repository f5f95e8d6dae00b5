"""Grades labs, each in a process of its own, and survives whatever a part does there.

A part may loop, crash, exit, fork, print without end or eat memory: the worker dies at its limits, the
test it was at gets that verdict, and another worker goes on with the tests that are left.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from grader.account import Account
from grader.channel import KEPT_OUTPUT, Heard
from grader.fair_clock import FairClock
from grader.machine import what_is_missing, why_too_long
from grader.places import open_places
from grader.process import GIB, WorkerProcess
from grader.room import room_for
from grader.submission import Submission, locate_in_trace
from grader.verdict import Explanation, LabResult, TaskResult, Verdict
from grader.worker import SUITES, Order
from yaie.curriculum.editions import how_to_upgrade, is_older
from yaie.curriculum.progress import part_digest
from yaie.system.files import reason

POLL_SECONDS = 0.05
GRACE_SECONDS = 1.5
"""After its time a test is interrupted; after this much more, deaf to that, the worker is killed."""
COMPILERS_GIB = 6.0


@dataclass(frozen=True, slots=True)
class Limits:
    """seconds: for a lab, from start to end. test_seconds: for one test. import_seconds: for the part's
    import. All are of a FairClock. memory_gib: of the worker with all its children, Python and torch
    included."""

    seconds: float = 60.0
    test_seconds: float = 10.0
    memory_gib: float = 2.0
    import_seconds: float = 20.0


Told = Callable[[Submission, int, int], None]
"""(submission, tests done, tests planned), whenever one is done. Called from any thread."""


def grade_labs(
    submissions: Sequence[Submission],
    *,
    tasks: Sequence[str] = (),
    seed: int = 0,
    limits: Limits = Limits(),
    jobs: int | None = None,
    on_done: Callable[[LabResult], None] = lambda result: None,
    on_test: Told = lambda submission, done, planned: None,
) -> list[LabResult]:
    """Grade several labs, `jobs` at once (by default as many as there are cores), in their order.

    When one cannot be graded at all, for whatever reason, its result says so; the others go on.
    """
    stop = threading.Event()

    def one(submission: Submission) -> LabResult:
        try:
            result = grade_lab(
                submission, tasks=tasks, seed=seed, limits=limits, stop=stop, on_test=on_test
            )
        except Exception as error:  # noqa: BLE001, a folder may be unreadable in many ways
            problem = Explanation("The lab can be graded.", f"{type(error).__name__}: {error}")
            result = _lab_result(submission, Account(broken=problem), tasks)
        on_done(result)
        return result

    with ThreadPoolExecutor(min(jobs or num_cores(), max(len(submissions), 1))) as pool:
        futures = [pool.submit(one, submission) for submission in submissions]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()  # every worker is killed at its next poll, before the pool closes
            pool.shutdown(cancel_futures=True)
            raise


def num_cores() -> int:
    """Cores that this process may use: fewer than there are, in many a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_suite(lab: str) -> bool:
    return any((SUITES / lab).glob("test_*.py"))


def grade_lab(
    submission: Submission,
    *,
    tasks: Sequence[str] = (),
    seed: int = 0,
    limits: Limits = Limits(),
    shrink: bool = True,
    effort: float = 1.0,
    stop: threading.Event | None = None,
    on_test: Told = lambda submission, done, planned: None,
) -> LabResult:
    """Grade one lab. tasks: ids to grade, all if empty. effort: multiplies the number of generated
    examples. stop: give up as soon as it is set."""
    began, used = time.monotonic(), 0.0
    stop = stop or threading.Event()
    account = Account(
        on_result=lambda told: on_test(submission, len(told.results), len(told.planned))
    )
    if not has_suite(submission.lab.key):
        problem = f"There are no tests for lab {submission.lab.key} yet."
        account.broken = Explanation("The lab has a grader.", problem)
    elif lack := what_is_missing(submission.lab):
        account.leave_open(submission.lab, lack)
    if submission.refused:
        account.broken = Explanation("The submission can be read.", submission.refused)
    elif is_older(submission.lab, edition := submission.edition):
        problem = f"{how_to_upgrade(submission.lab, edition)}."
        account.broken = Explanation("The package is of today's edition.", problem)
    digest, invalid = _digest(submission), ""
    output, heard = b"", Heard()
    with room_for(submission) as room:
        while not account.is_over and not stop.is_set():
            left = limits.seconds - used
            if left <= 0:
                break
            known, account.at = len(account.results), ("start", "")
            order = _order(submission, account, tasks, limits, left)
            order.seed, order.shrink, order.effort = seed, shrink, effort
            ended = _run_worker(order, account, submission, room, limits, left, stop)
            if ended is None:
                break
            used += ended.used
            invalid = invalid or ended.invalid
            output = (output + ended.output)[-KEPT_OUTPUT:]
            heard.printed += ended.heard.printed
            heard.dropped += ended.heard.dropped
            if stop.is_set() or account.is_over:
                break
            account.bury(ended.death, ended.where, ended.output.decode("utf-8", "replace"))
            if used >= limits.seconds:
                break
            if not account.planned and not account.is_over:
                account.broken = Explanation(
                    "The grader can start.", ended.death, where=ended.where
                )
            elif len(account.results) == known and not account.is_over:
                name, task, _ = account.open_tests[0]  # or the next worker would do no better
                account.settle(name, task, Verdict.FAILED, ended.death, where=ended.where)
    _note_what_was_not_reached(account, limits)
    # What was saved while it was graded is anybody's guess: such a result vouches for no source.
    digest = digest if not invalid and _digest(submission) == digest else ""
    seconds = round(time.monotonic() - began, 2)
    result = _lab_result(submission, account, tasks, digest, seconds, output, heard)
    return replace(result, invalid=invalid)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A worker that has ended. used: seconds of its FairClock. death: how, in words; where: at which
    line of the part. invalid: why what it found out is no grade."""

    used: float
    death: str
    where: str
    invalid: str
    output: bytes
    heard: Heard


def _run_worker(
    order: Order,
    account: Account,
    submission: Submission,
    room: Path | None,
    limits: Limits,
    left: float,
    stop: threading.Event,
) -> _Ended | None:
    """None if nothing can be found out on this machine; then the account is closed."""
    try:
        with WorkerProcess(order, account.take, submission, room) as worker:
            graded, clock = worker.submission, FairClock(worker.pids)
            death = _watch(worker, account, clock, left, limits, stop)
            where = locate_in_trace(worker.trace(ask=True), graded) if death else ""
            death = death or worker.end()
            where = where or locate_in_trace(worker.trace(), graded)
    except OSError as error:  # a full disk, say: the part has done nothing wrong
        account.lack = f"The grader could not start: {reason(error)}."
    if account.lack:
        account.leave_open(submission.lab, account.lack)
        return None
    invalid = f"{worker.changed} was changed while it was graded." if worker.changed else ""
    return _Ended(clock.used, death, where, invalid, worker.output, worker.heard)


def _digest(submission: Submission) -> str:
    """Of the source that is graded; "" of one that is not."""
    if submission.kept is not None:
        return submission.kept.digest
    return "" if submission.refused else part_digest(submission.folder)


def _order(
    submission: Submission, account: Account, tasks: Sequence[str], limits: Limits, left: float
) -> Order:
    still_open = {name for name, _, _ in account.open_tests}
    return Order(
        lab=submission.lab.key,
        folder=str(submission.folder),
        shown_from=str(submission.shown_from),
        fd=-1,
        tasks=list(tasks),
        done=[name for name, _, _ in account.planned if name not in still_open],
        test_seconds=min(limits.test_seconds, left),
        memory_bytes=int(limits.memory_gib * GIB) if sys.platform == "linux" else 0,
        cpu_seconds=int(2 * limits.seconds) + 10,
    )


def _watch(
    worker: WorkerProcess,
    account: Account,
    clock: FairClock,
    left: float,
    limits: Limits,
    stop: threading.Event,
) -> str:
    """Wait for the worker's end. Returns why it must be ended, "" if it has done so itself."""
    at, began, before = account.at, 0.0, 0.0
    while not worker.wait(POLL_SECONDS):
        clock.look()
        used = clock.used
        if account.at != at:
            at, began, before = account.at, used, worker.computed()
        patience = _patience(account, limits)
        if stop.is_set():
            return "It was stopped."
        if used > left or used - began > patience:
            computed = worker.computed() - before
            account.why = why_too_long(used - began, computed, clock.is_starved)
        if used > left:
            return f"It was still running when the lab's {limits.seconds:g} seconds were over."
        if used - began > patience:
            return f"It was still running after {patience - GRACE_SECONDS:g} seconds."
        if excess := worker.excess(_allowed_gib(account, limits)):
            return excess
    return ""


def _allowed_gib(account: Account, limits: Limits) -> float:
    """Compilers run several at once, and are not the part."""
    return limits.memory_gib + (COMPILERS_GIB if account.at[0] == "compile" else 0)


def _patience(account: Account, limits: Limits) -> float:
    """How long what runs now may take. The grader's own start is bounded by the lab's time only."""
    name, task = account.at
    if task:
        return limits.test_seconds + GRACE_SECONDS
    return limits.import_seconds + GRACE_SECONDS if name == "import" else limits.seconds


def _note_what_was_not_reached(account: Account, limits: Limits) -> None:
    seconds = f"the lab's {limits.seconds:g} seconds were used up"
    if account.broken is None and not account.planned:
        account.broken = Explanation("The grader can start.", f"It did not: {seconds}.")
    for name, task, _ in account.open_tests:
        account.settle(name, task, Verdict.NOT_VERIFIED, f"Not reached: {seconds}.")


def _lab_result(
    submission: Submission,
    account: Account,
    only: Sequence[str],
    digest: str = "",
    seconds: float = 0.0,
    output: bytes = b"",
    heard: Heard | None = None,
) -> LabResult:
    wanted = [task for task in submission.lab.tasks if not only or task.id in only]
    results = [
        TaskResult(task, tuple(r for r in account.results.values() if r.task == task.id))
        for task in wanted
    ]
    is_anothers = submission.kept is not None or submission.refused
    return LabResult(
        lab=submission.lab,
        tasks=tuple(results),
        digest=digest,
        seconds=seconds,
        problem=account.broken,
        only=tuple(only),
        open_places={} if is_anothers else open_places(submission),
        output=output.decode("utf-8", "replace"),
        output_cut=heard.printed - len(output) if heard else 0,
        told_cut=heard.dropped if heard else 0,
    )
