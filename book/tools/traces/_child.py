"""Record a learner's part, in a process of its own: run by `show`, which reads the file it writes.

Code under construction raises, loops or eats memory. What it prints goes where `show` prints; what went
wrong stands in the report, with the line of the lab that it happened in.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from book.tools.traces import Trace, of_lab, recorder
from book.tools.traces._story import Story, StoryError
from yaie.core.errors import PartError
from yaie.curriculum.blame import line_in, line_of_ours, summarize
from yaie.explore import chosen
from yaie.parts import YOURS, Parts, load_parts
from yaie.system.interrupt import leave_message_to_others

GIB = 2**30
LOOK_EVERY = 0.1


@dataclass
class Recording:
    """One trace. failed: what went wrong, else ''; the trace then ends before it."""

    name: str
    trace: Trace | None = None
    failed: str = ""


@dataclass
class Report:
    """refused: why the part could not be loaded, else ''. owner: whose it is, as in `Part.owner`."""

    lab: str
    refused: str = ""
    owner: str = YOURS
    recordings: list[Recording] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(file: Path) -> "Report":
        fields: dict[str, Any] = json.loads(file.read_text("utf-8"))
        recordings = [Recording(**recording) for recording in fields.pop("recordings")]
        return Report(**fields, recordings=recordings)


def main(lab: str, file: Path, seconds: float, gib: float) -> None:
    """Record every trace of a lab. seconds, gib: what loading, and each trace, may take."""
    report = Report(lab)
    watch = Watch(report, file, seconds, gib)
    try:
        parts = load_parts(chosen(lab))
        report.owner = next(part.owner for part in parts.table() if part.lab == lab)
    except PartError as error:
        report.refused = error.message
    else:
        for name in of_lab(lab):
            watch.begin(name)
            report.recordings.append(record(name, parts, watch.folder))
    watch.stop()
    report.write(file)


def record(name: str, parts: Parts, folder: Path) -> Recording:
    """One trace; a part that raises is no reason to stop."""
    Story.latest = None
    try:
        trace = recorder(name).record(parts.__getitem__)
    except StoryError as error:
        return Recording(name, so_far(), str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001, the learner's code may raise anything
        if where := line_in(folder, error):
            return Recording(name, so_far(), f"{summarize(error)} ({where})")
        # No line of the part: the recorder stumbled over what it returned, or over its signature.
        failed = f"it does not keep its contract: {summarize(error)} ({line_of_ours(error)})"
        return Recording(name, so_far(), failed)
    return Recording(name, trace)


def so_far() -> Trace | None:
    """The steps before a failure, if there are any."""
    return Story.latest.trace if Story.latest and Story.latest.steps else None


class Watch:
    """A thread that ends the process when a trace takes too long or too much, and says where it was."""

    def __init__(self, report: Report, file: Path, seconds: float, gib: float) -> None:
        self.report, self.file, self.seconds, self.gib = report, file, seconds, gib
        self.folder = Path("labs", report.lab).resolve()
        self._name = ""
        self._done = threading.Event()
        self._began = time.monotonic()
        self._main = threading.get_ident()
        threading.Thread(target=self._look, daemon=True).start()

    def begin(self, name: str) -> None:
        """The time for this trace runs from here."""
        self._name, self._began = name, time.monotonic()

    def stop(self) -> None:
        self._done.set()

    def _look(self) -> None:
        process = psutil.Process()
        while not self._done.wait(LOOK_EVERY):
            if time.monotonic() - self._began > self.seconds:
                self._end(f"did not come to an end within {self.seconds:g} s")
            if process.memory_info().rss > self.gib * GIB:
                self._end(f"took more than {self.gib:g} GiB of memory")

    def _end(self, what: str) -> None:
        failed = f"{what}{self._where()}"
        if self._name:
            self.report.recordings.append(Recording(self._name, so_far(), failed))
        else:
            self.report.refused = f"your part {self.report.lab} {failed} while it was imported"
        self.report.write(self.file)
        sys.stdout.flush()
        os._exit(0)  # the main thread does not listen

    def _where(self) -> str:
        frame: FrameType | None = sys._current_frames()[self._main]
        while frame:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(self.folder):
                shown = file.relative_to(self.folder.parent.parent).as_posix()
                return f" ({shown}, line {frame.f_lineno})"
            frame = frame.f_back
        return ""


if __name__ == "__main__":
    leave_message_to_others()
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
