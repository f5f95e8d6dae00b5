"""A line for each lab while it is graded; on a terminal only, and gone afterwards."""

import threading
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from grader.submission import Submission
from grader.verdict import LabResult

MOST_LINES = 10


class LiveLines:
    """Hand `on_test` and `on_done` to `grade_labs`; they may be called from any thread.

    A class of many submissions has one line for all of them.
    """

    def __init__(self, console: Console, submissions: Sequence[Submission]) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._lock = threading.Lock()
        count = len(submissions)
        self._whole = self._bar.add_task(f"{count} labs", total=count) if count > 1 else None
        shown = submissions if count <= MOST_LINES else ()
        self._lines = {s: self._bar.add_task(s.lab.key, total=None) for s in shown}

    def __enter__(self) -> "LiveLines":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_test(self, submission: Submission, done: int, planned: int) -> None:
        with self._lock:
            if submission in self._lines:
                self._bar.update(self._lines[submission], completed=done, total=planned)

    def on_done(self, result: LabResult) -> None:
        with self._lock:
            for submission, line in self._lines.items():
                if submission.lab.key == result.lab.key:
                    self._bar.update(line, visible=False)
            if self._whole is not None:
                self._bar.advance(self._whole)
