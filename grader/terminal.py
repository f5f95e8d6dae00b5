"""`make watch` on a terminal: the loop around `watch.py`, its keys, its screen and its threads."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from grader.hints import give_hint
from grader.record import record
from grader.report.lines import show
from grader.reset import reset_lab
from grader.runner import grade_lab
from grader.scratch import with_replay
from grader.submission import find_submission
from grader.verdict import Explanation, LabResult, TaskResult
from grader.watch import Graded, Watch
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.curriculum.progress import Progress, part_digest

TICK_SECONDS = 0.2


def run_watch(lab_key: str, seed: int, console: Console) -> None:
    """Watch a lab until the learner leaves. Raises ConfigError without a terminal."""
    if not sys.stdin.isatty() or not console.is_terminal:
        raise ConfigError("watch needs a terminal for its keys; make grade LAB=... grades once")
    desk = LocalDesk(seed)
    labs = load_curriculum()
    lab = labs[lab_key] if lab_key else (desk.first_open() or labs.labs[0])
    find_submission(lab)  # raises if there is nothing to watch
    watch = Watch(lab, desk, console.width)
    try:
        # The terminal comes first: ending a grading may take longer than a Ctrl-C gives.
        with pressed_keys(sys.stdin.fileno()) as read_key:
            while not watch.is_over:
                watch.tick()
                if watch.is_stale:
                    watch.is_stale, watch.width = False, console.width
                    console.clear()
                    show(console, watch.screen())
                if key := read_key(TICK_SECONDS):
                    watch.key(key)
    finally:
        watch.close()


@contextmanager
def pressed_keys(fd: int) -> Iterator[Callable[[float], str]]:
    """Single keys, without Enter and without echo. The terminal is as it was afterwards, come what may.

    Yields a function that waits this many seconds for a key; "" if none came, "q" at the end of input.
    """
    import termios
    import tty

    def read_key(seconds: float) -> str:
        if not select.select([fd], [], [], seconds)[0]:
            return ""
        pressed = os.read(fd, 32)
        if not pressed:
            return "q"
        # More than a character at once is an arrow, or something pasted: not a command.
        return pressed.decode("utf-8", "replace") if len(pressed) == 1 else ""

    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield read_key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class LocalDesk:
    """The labs of this checkout."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def digest(self, lab: Lab) -> str:
        try:
            return part_digest(ROOT / "labs" / lab.key)
        except OSError:  # caught while an editor replaces a file
            return ""

    def start(self, lab: Lab) -> "ThreadedGrading":
        return ThreadedGrading(lab, self._seed)

    def hint(self, lab: Lab, width: int) -> list[Text]:
        return give_hint(lab, width=width)

    def reset(self, lab: Lab) -> str:
        return reset_lab(lab).describe(lab)

    def next_lab(self, lab: Lab) -> Lab | None:
        return self.first_open(after=lab.number)

    def first_open(self, after: int = 0) -> Lab | None:
        progress = Progress.load(ROOT)
        for lab in load_curriculum().labs:
            if lab.number > after and not progress.is_complete(lab, ROOT / "labs" / lab.key):
                return lab
        return None


class ThreadedGrading:
    """A grading beside the loop that reads keys."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._graded: Graded | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(lab, seed), daemon=True)
        self._thread.start()

    def _run(self, lab: Lab, seed: int) -> None:
        try:
            submission = find_submission(lab)
            graded = grade_lab(submission, seed=seed, stop=self._stop)
            result = with_replay(graded, submission, seed)
        except Exception as error:  # noqa: BLE001, the loop goes on and shows it
            problem = Explanation("The lab can be graded.", f"{type(error).__name__}: {error}")
            result = LabResult(lab, tuple(TaskResult(t, ()) for t in lab.tasks), problem=problem)
        if not self._stop.is_set():
            unkept: list[str] = []
            withdrawn = record(result, complain=unkept.append)
            self._graded = replace(result, unkept="".join(unkept)), withdrawn

    def poll(self) -> Graded | None:
        return self._graded

    def cancel(self) -> None:
        self._stop.set()
        self._thread.join()
