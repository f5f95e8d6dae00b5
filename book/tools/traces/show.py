"""The book's figures of a lab, recorded from your part: python -m book.tools.traces.show LAB

For `make show LAB=radix_tree`. Where your part does something else than the reference, the reference's
figure stands beside yours, and both open at the first step in which they differ. The page is one file,
.yaie/show/<lab>.html, and loads nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from book.tools.traces import ROOT, Trace, as_text, names, of_lab, recorder, reference, trace_file
from book.tools.traces._child import Recording, Report
from book.tools.traces._page import Pair, page
from yaie.curriculum.manifest import load_curriculum
from yaie.parts import YOURS, open_tasks
from yaie.system.files import cannot_write, write_whole
from yaie.system.streams import sound_streams

SECONDS, GIB = 20.0, 3.0
# For a process that does not even let its own watch run.
GRACE = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if every figure could be recorded to its end, 2 if the page cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m book.tools.traces.show")
    parser.add_argument("lab", nargs="?", default="", metavar="LAB", help="for example radix_tree")
    parser.add_argument("--no-browser", action="store_true", help="only write the page")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each figure [20]")
    options = parser.parse_args(arguments)
    shown = sorted({recorder(name).LAB or "" for name in names()} - {""})
    if options.lab not in shown:
        choice = f"name one of {', '.join(shown)}: make show LAB={shown[0]}"
        print(f"{_why_not(options.lab)}; {choice}", file=sys.stderr)
        return 2
    report = record(options.lab, options.seconds)
    if report.refused:
        print(refusal(report), file=sys.stderr)
        return 1
    pairs = [compared(recording) for recording in report.recordings]
    for pair in pairs:
        print(f"{pair.name}: {pair.verdict}")
    file = labs_root() / f".yaie/show/{options.lab}.html"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, page(options.lab, whose(report), pairs))
    except OSError as error:
        print(cannot_write(file, error), file=sys.stderr)
        return 2
    print(f"The page: {file}")
    if not options.no_browser:
        webbrowser.open(file.as_uri())
    return 1 if any(pair.failed for pair in pairs) else 0


def _why_not(lab: str) -> str:
    if not lab:
        return "A lab is missing"
    if lab in load_curriculum().keys:
        return f"No figure shows {lab}"
    return f"There is no lab {lab!r}"


def labs_root() -> Path:
    """The folder that `labs` is imported from."""
    spec = find_spec("labs")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]).resolve().parent if folders else ROOT


def record(lab: str, seconds: float) -> Report:
    """Have a process of its own record the learner's part, and read what it has to say."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="yaie-show-") as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", "book.tools.traces._child", lab, str(file)]
        try:
            child = subprocess.run(
                [*command, str(seconds), str(GIB)],
                cwd=labs_root(),
                env={**os.environ, "PYTHONPATH": path},
                timeout=seconds * (len(of_lab(lab)) + 1) + GRACE,
            )
        except subprocess.TimeoutExpired:
            return Report(lab, refused=f"your part {lab} did not come to an end, and was stopped")
        if not file.is_file():
            said = f"it ended with status {child.returncode}"
            return Report(lab, refused=f"your part {lab} brought the whole process down: {said}")
        return Report.read(file)


def refusal(report: Report) -> str:
    """Why there is nothing to show, and which tasks are open."""
    titles = {task.id: task.title for task in load_curriculum()[report.lab].tasks}
    lines = [f"Nothing to show yet: {report.refused}"]
    if report.owner == YOURS and (open_ids := open_tasks(report.lab)):
        lines += ["", f"Tasks of {report.lab} that are still open:"]
        lines += [f"  {task}  {titles.get(task, '')}".rstrip() for task in open_ids]
    lines += ["", f"What the reference does: YAIE_MINE=none make show LAB={report.lab}"]
    return "\n".join(lines)


def whose(report: Report) -> str:
    """The part that was recorded, in words."""
    return f"{'your' if report.owner == YOURS else 'the reference’s'} {report.lab}"


def compared(recording: Recording) -> Pair:
    """A recording beside what the reference does."""
    kept = trace_file(recording.name)
    theirs = json.loads(
        kept.read_text("utf-8")
        if kept.is_file()
        else as_text(recorder(recording.name).record(reference))
    )
    if recording.failed:
        return _failed(recording, theirs)
    assert recording.trace is not None
    difference = first_difference(recording.trace, theirs)
    if difference is None:
        count = sum(len(track["steps"]) for track in tracks(recording.trace).values())
        verdict = "the same as the reference's" + (f", all {count} steps" if count else "")
        return Pair(recording.name, recording.trace, None, verdict)
    verdict = "not what the reference does"
    if found := tracks(recording.trace):
        where = f" of “{found[difference.track].get('label')}”" if difference.track else ""
        verdict += f" from step {difference.step + 1}{where} on"
    return Pair(recording.name, recording.trace, theirs, verdict, difference.step, difference.track)


def _failed(recording: Recording, theirs: Trace) -> Pair:
    """What there is of a trace, with a last step that says what happened."""
    trace, verdict = recording.trace, recording.failed
    if trace:
        steps = trace["steps"]
        verdict = f"failed after step {len(steps)}: {recording.failed}"
        steps.append({**steps[-1], "say": f"Here your part failed: {recording.failed}."})
    start = len(trace["steps"]) - 1 if trace else 0
    return Pair(recording.name, trace, theirs, verdict, start, failed=True)


class Difference(NamedTuple):
    """Where two traces first differ. track: its key, "" in a trace without tracks. step: from 0 on."""

    track: str
    step: int


def tracks(trace: Trace) -> dict[str, Trace]:
    """The parts of a trace that have steps, by key; the whole is "" where it has no tracks."""
    found: dict[str, Trace] = trace.get("tracks") or {"": trace}
    return {key: track for key, track in found.items() if "steps" in track}


def first_difference(mine: Trace, theirs: Trace) -> Difference | None:
    """Where two traces first differ; None if they are the same.

    What differs outside its steps, or has none, differs from the beginning.
    """
    if mine == theirs:
        return None
    others = tracks(theirs)
    for key, track in tracks(mine).items():
        ours, expected = track["steps"], others.get(key, {}).get("steps", [])
        if ours != expected:
            pairs = enumerate(zip(ours, expected, strict=False))
            shorter = min(len(ours), len(expected))
            return Difference(key, next((index for index, (a, b) in pairs if a != b), shorter))
    return Difference(next(iter(tracks(mine)), ""), 0)


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
