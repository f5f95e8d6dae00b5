"""Runs one failed test again, alone: what a file of .yaie/scratch does (`scratch.py` writes it).

The test gets the part as it is now, the seed of the grading, and of a search for counterexamples the one
that was found. Calls are printed as they happen, among whatever the part prints.
"""

import argparse
import bdb
import faulthandler
import os
import pdb
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grader.report.lines import clean
from grader.verdict import Again, Explanation, TestResult, Verdict, from_json
from yaie.core.errors import YaieError
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import part_digest

TEST_SECONDS = 10.0
GIVEN_UP = 130


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, as a file of .yaie/scratch has it.

    folder: of the part, absolute or below the root. seed: see `Session`. again: None where the process
    died; then the whole test runs. digest: of the source that was graded.
    """

    lab: str
    test: str
    folder: str
    seed: int = 0
    again: Again | None = None
    digest: str = ""


def replay(failure: Failure, arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if the test holds now, 1 if it does not, 130 if the debugger was left."""
    parser = argparse.ArgumentParser(description="Runs a test that failed again, alone.")
    parser.add_argument("--pdb", action="store_true", help="stop in the debugger, see below")
    parser.epilog = (
        "--pdb stops in the part's method that the last call before the failure enters; where no call "
        "was written down, it stops at the failure."
    )
    wants_pdb = parser.parse_args(arguments).pdb
    _prepare(failure)
    result = _run(failure, wants_pdb)
    return 1 if result is None else _tell(failure, result)


def _prepare(failure: Failure) -> None:
    """What a worker's process has: see `process.py`. Before torch or triton are imported."""
    from grader.machine import environment
    from grader.process import ONE_THREAD

    ours = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.environ.update(ONE_THREAD | ours | environment(load_curriculum()[failure.lab]))
    sys.dont_write_bytecode = True
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _run(failure: Failure, wants_pdb: bool) -> TestResult | None:
    """The result; None if there is none, and why has been said."""
    from grader.compiling import compile_part
    from grader.kit.session import SESSION
    from grader.submission import Submission, explain_import, load
    from grader.worker import run_suite

    folder = (ROOT / failure.folder).resolve()
    shown_from = ROOT if folder.is_relative_to(ROOT) else folder.parent
    submission = Submission(load_curriculum()[failure.lab], folder, shown_from)
    try:
        part = load(submission)
    except BaseException as error:  # noqa: BLE001, a part may raise anything
        _show(explain_import(error, submission))
        return None
    try:
        complaint = compile_part(submission)
    except YaieError as error:
        complaint = Explanation("The part can be compiled here.", error.message)
    if complaint:
        _show(complaint)
        return None
    again = failure.again or Again()
    SESSION.seed = failure.seed
    SESSION.only = None if failure.again is None else again.search
    if again.example and _hypothesis_version() == again.version:
        SESSION.pinned = (again.version, again.example.encode())
    events: list[dict[str, Any]] = []

    def emit(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "test" and event["task"] and not wants_pdb:
            # For what is deaf to the alarm: says where it is, and ends with status 1.
            faulthandler.dump_traceback_later(TEST_SECONDS + 2, exit=True)
        elif event["event"] == "result":
            faulthandler.cancel_dump_traceback_later()

    recorder = _recorder(submission, part, emit, again, wants_pdb)
    run_suite(failure.test, recorder)
    for event in events:
        if event["event"] == "result":
            return from_json(event["test"])
        if event["event"] == "broken":
            print(event["explanation"]["problem"])
    print(f"There is no test {failure.test} any more: make grade LAB={failure.lab}")
    return None


def _hypothesis_version() -> str:
    from hypothesis import __version__

    return __version__


def _recorder(submission: Any, part: Any, emit: Any, again: Again, wants_pdb: bool) -> Any:
    """The grader's own recorder; with a debugger no time runs out."""
    from grader.kit.script import Script, listen
    from grader.kit.session import SESSION
    from grader.recorder import Recorder

    has_stopped = False

    def carry_out(script: Script, method: Any, args: Any, kwargs: Any) -> Any:
        nonlocal has_stopped
        here = (script.number, script.num_calls) == (again.script, again.call)
        if not (wants_pdb and here and SESSION.searches >= again.search):
            return method(*args, **kwargs)
        has_stopped = True
        print(
            "The debugger stands at the beginning of this call. n: next line, s: step in, c: go on."
        )
        try:
            return pdb.Pdb().runcall(method, *args, **kwargs)
        except bdb.BdbQuit:
            os._exit(GIVEN_UP)

    class Stopping(Recorder):
        def _result(self, item: Any, error: BaseException | None, seconds: float) -> TestResult:
            if wants_pdb and error is not None and not has_stopped and error.__traceback__:
                _finish_line()
                print(f"The debugger stands where it failed: {type(error).__name__}. u: up a call.")
                pdb.post_mortem(error.__traceback__)
            return super()._result(item, error, seconds)

        def _advice(self, *about: Any) -> str:
            """The test runs again, and says nothing."""
            listen(lambda script, method, args, kwargs: method(*args, **kwargs), list)
            try:
                return super()._advice(*about)
            finally:
                listen(carry_out, _Told)

    listen(carry_out, _Told)
    seconds = 1e6 if wants_pdb else TEST_SECONDS
    return Stopping(submission, part, emit, test_seconds=seconds)


class _Told(list[str]):
    """A script's lines, printed as they come. What a call gave is known later: it is printed before the
    next line."""

    newest: "_Told | None" = None

    def append(self, line: str) -> None:
        _finish_line()
        print(f"  {clean(line)}", flush=True)
        super().append(line)
        self.printed = line
        _Told.newest = self


def _finish_line() -> None:
    lines = _Told.newest
    if lines and lines[-1] != lines.printed:
        gave = lines[-1].removeprefix(lines.printed).strip()
        print(f"      {clean(gave)}", flush=True)
        lines.printed = lines[-1]


def _tell(failure: Failure, result: TestResult) -> int:
    """What came of it, in the words of a report."""
    _finish_line()
    if result.verdict is Verdict.PASSED:
        is_same = part_digest((ROOT / failure.folder).resolve()) == failure.digest
        if is_same:
            print(
                "\nIt holds when it is run alone, on the very source that failed. Something outlives a "
                f"test:\na module's variable, or a class's. make grade LAB={failure.lab} shows it."
            )
        else:
            task = f"LAB={failure.lab} TASK={result.task}"
            print(f"\nThis example holds now. All of the task: make grade {task}")
        return 0
    print()
    if result.explanation is not None:
        _show(result.explanation)
    return 1


def _show(why: Any) -> None:
    """An explanation without the calls, which were printed."""
    from grader.report.lines import show
    from grader.report.text import explanation_lines
    from yaie.system.terminal import Terminal

    console = Terminal()
    show(console, explanation_lines(replace(why, script=()), console.width))


def run_file(failure: Failure) -> None:
    """What the last line of a scratch file calls."""
    faulthandler.enable()
    status = replay(failure)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of the part have no say in how this ends
