"""Grades one part in a process of its own: `python -m grader.worker '{"lab": ...}'`.

Started by `runner.py`, which watches it. Results go to the file descriptor `fd` of the order, a line of
JSON each; whatever the part prints goes to stdout and stderr, and is the runner's to keep or to drop.
"""

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

SUITES = Path(__file__).resolve().parent / "suites"
WHOLE = "test_in_the_engine.py"
LOST_CHANNEL = 97
"""Exit status if results can no longer be sent: the part has closed what is not its own."""
LARGEST_FILE = 2**30
TORCH_MAPS = 8 * 2**30
"""Address space, not memory, that importing torch may take with all its CUDA libraries."""
Emit = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Order:
    """What to grade. fd: where results go.

    traces: file descriptor for the line at which the process hangs or crashes, -1 for none.
    lifeline: a connection; when its other end closes, the runner is gone and can stop no worker.
    memory_bytes: address space beside what Python and torch map, 0 for no limit. cpu_seconds: of
    processor time, 0 for no limit. done: tests that are not to be run. effort: multiplies examples.
    most_tasks: processes and threads that the user may have when another is started, 0 for no limit.
    """

    lab: str
    folder: str
    shown_from: str
    fd: int
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    test_seconds: float = 10.0
    memory_bytes: int = 0
    shrink: bool = True
    traces: int = -1
    lifeline: int = -1
    cpu_seconds: int = 0
    effort: float = 1.0
    most_tasks: int = 0


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    emit = open_channel(order)

    from grader.kit.session import SESSION

    SESSION.seed, SESSION.shrink, SESSION.effort = order.seed, order.shrink, order.effort
    if os.environ.get("TRITON_INTERPRET"):
        _start_compiler(order)
    grade(order, emit)
    end(emit)


def open_channel(order: Order) -> Emit:
    """Make this process one that its runner can watch and end; returns what sends it an event."""
    pid = os.getpid()

    def emit(event: dict[str, Any]) -> None:
        if os.getpid() != pid:
            os._exit(0)  # the part forked, and this is the copy
        # The part may have written here, and left its line open.
        line = b"\n" + json.dumps(event).encode() + b"\n"
        try:
            while line:
                line = line[os.write(order.fd, line) :]
        except OSError:
            os._exit(LOST_CHANNEL)

    if order.lifeline >= 0:
        threading.Thread(target=_die_with_the_runner, args=(order.lifeline,), daemon=True).start()
    if order.traces >= 0:
        faulthandler.enable(order.traces, all_threads=False)
        # Another thread may take the signal, where the main one has one to take already.
        faulthandler.register(signal.SIGUSR1, order.traces, all_threads=True)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    return emit


def end(emit: Emit) -> NoReturn:
    """Say that all is done, and end: threads and exit handlers of the part have no say in how."""
    emit({"event": "end"})
    with suppress(Exception):  # the part may have closed it
        sys.stdout.flush()
    os._exit(0)


def grade(order: Order, emit: Any, exit_first: bool = False) -> None:
    """Import the part and run its lab's suite. exit_first: stop at the first test that fails.

    Torch is imported only if the part or its suite does: that takes longer than many a suite.
    """
    from grader.compiling import compile_part
    from grader.recorder import Recorder
    from grader.submission import Submission, explain_import, load
    from grader.surroundings import Surroundings
    from yaie.core.errors import YaieError
    from yaie.curriculum.manifest import load_curriculum

    gc.disable()
    lab = load_curriculum()[order.lab]
    submission = Submission(lab, Path(order.folder), Path(order.shown_from))
    surroundings = Surroundings()
    pid = os.getpid()
    limit(order)
    emit({"event": "test", "name": "import", "task": ""})
    try:
        part = load(submission)
    except BaseException as error:  # noqa: BLE001, a part may raise anything
        surroundings.restore()
        emit({"event": "broken", "explanation": explain_import(error, submission).as_table()})
        return
    if os.getpid() != pid:
        os._exit(0)
    surroundings.restore()
    gc.disable()  # until all is imported; see `Recorder.pytest_collection_finish`
    emit({"event": "test", "name": "compile", "task": ""})
    try:
        complaint = compile_part(submission)
    except YaieError as error:
        emit({"event": "lack", "sentence": error.message})
        return
    if complaint:
        emit({"event": "broken", "explanation": complaint.as_table()})
        return
    emit({"event": "test", "name": "collect", "task": ""})
    recorder = Recorder(
        submission,
        part,
        emit,
        tasks=order.tasks,
        done=order.done,
        test_seconds=order.test_seconds,
        surroundings=surroundings,
    )
    run_suite(order.lab, recorder, exit_first)


def _start_compiler(order: Order) -> None:
    """Kernels are compiled while the suite interprets them."""
    from grader.kit import compiled
    from grader.submission import Submission
    from yaie.curriculum.manifest import load_curriculum

    lab = load_curriculum()[order.lab]
    submission = Submission(lab, Path(order.folder), Path(order.shown_from))
    compiled.start(submission, memory_bytes=order.memory_bytes, cpu_seconds=order.cpu_seconds)


def run_suite(name: str, recorder: Any, exit_first: bool = False) -> None:
    """pytest on a lab's suite, with what is asked of the whole part, or on one test. Nothing is read or
    written outside. name: of the lab, or the test's id."""
    import pytest

    arguments = [
        str(SUITES / name),
        *([str(SUITES / WHOLE)] if (SUITES / name).is_dir() else []),
        f"--config-file={SUITES / 'pytest.ini'}",
        f"--rootdir={SUITES}",
        "--import-mode=importlib",
        "--assert=plain",
        "--capture=no",
        "-p", "no:cacheprovider",
        "-p", "no:terminal",
        "-p", "no:faulthandler",
        "-p", "no:stepwise",
        "-p", "no:randomly",
    ]  # fmt: skip
    if exit_first:
        arguments.append("--exitfirst")
    pytest.main(arguments, plugins=[recorder])


def limit(order: Order) -> None:
    """Limits that the kernel keeps. Not every system has each: the runner watches as well."""
    if order.memory_bytes:
        allowance = 0 if "torch" in sys.modules else TORCH_MAPS
        _lower(resource.RLIMIT_AS, _mapped_bytes() + allowance + order.memory_bytes)
    if order.cpu_seconds:
        _lower(resource.RLIMIT_CPU, order.cpu_seconds)
        _lower(resource.RLIMIT_FSIZE, LARGEST_FILE)
        _lower(resource.RLIMIT_CORE, 0)
    if order.most_tasks:
        _limit_tasks(order.most_tasks)


def _limit_tasks(most: int) -> None:
    """Linux counts every process and thread of the user, those in other containers as well, which
    cannot be seen here: if the limit allows no further thread, it is taken back. It
    limits nothing for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
        try:
            probe = threading.Thread(target=bool)
            probe.start()
            probe.join()
        except RuntimeError:
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        else:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with suppress(ValueError, OSError):  # macOS knows RLIMIT_AS, but refuses it
        resource.setrlimit(kind, (limit, hard))


def _mapped_bytes() -> int:
    """The address space that Python, torch and the rest take already."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _die_with_the_runner(lifeline: int) -> None:
    """Wait for the end of the runner, however it comes. In a thread: the part may do what it likes."""
    with suppress(OSError):
        if os.read(lifeline, 1) == b"":
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
