"""A folder of submissions: `python -m grader grade --submissions DIR`.

Every subfolder is a student's, with their labs in it, as <lab>/ or as labs/<lab>/. All are read before
the first one runs; each lab of each student then has a process of its own, and in it a copy of what was
read. A process runs as the user who grades, so a submission that means to can still write to the
folders: at the end they are compared with what was read, and so are the grader's own files.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from grader.machine import CUDA
from grader.report.formats import VERSION, lab_table
from grader.report.lines import clean, columns, show, without_codes
from grader.room import compiled_before
from grader.snapshot import Refused, broken_seal, read_snapshot, seal
from grader.submission import Submission, handed_in
from grader.verdict import LabResult
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab
from yaie.system.files import write_whole

MISSING = "missing"
BROKEN = "broken"
CHANGED = "changed"
OWN_FOLDERS = ("grader", "yaie", "solutions")
"""What every worker loads."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a cell that begins so for something to carry out."""


@dataclass(frozen=True, slots=True)
class Student:
    """One row. submissions: by lab; a lab that was not handed in is not there."""

    name: str
    submissions: dict[str, Submission]


@dataclass(frozen=True, slots=True)
class Row:
    """A student with the results of the labs that were handed in."""

    student: Student
    results: dict[str, LabResult]

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results.values())

    def cell(self, lab: Lab) -> str:
        """Points, or why there are none. A part that cannot be imported earns nothing, and says so; so
        does one whose files were changed."""
        result = self.results.get(lab.key)
        if result is None:
            return MISSING
        if result.invalid:
            return CHANGED
        return str(result.points) if result.problem is None else BROKEN


def find_students(folder: Path, labs: Sequence[Lab]) -> list[Student]:
    """With what they handed in, read now. Raises ConfigError if there are none, or none of them has any
    of the labs."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", param="submissions")
    students = []
    for path in sorted(folder.resolve().iterdir()):
        if path.is_dir() and not path.name.startswith((".", "__")):
            found = {lab.key: handed_in(path, lab) for lab in labs}
            students.append(Student(path.name, {k: s for k, s in found.items() if s is not None}))
    if not any(student.submissions for student in students):
        raise ConfigError(
            f"{folder} holds no submission: expected <student>/<lab>/ or <student>/labs/<lab>/",
            param="submissions",
        )
    return students


def grade_students(
    students: Sequence[Student], grade: Callable[[list[Submission]], list[LabResult]]
) -> list[Row]:
    """grade: grades a list of submissions, in its order."""
    if any(CUDA in one.lab.verify for s in students for one in s.submissions.values()):
        compiled_before(True)
    sealed = seal(ROOT, OWN_FOLDERS)
    order = [(s.name, lab) for s in students for lab in s.submissions]
    results = grade([submission for s in students for submission in s.submissions.values()])
    if file := broken_seal(sealed, seal(ROOT, OWN_FOLDERS)):
        told = f"The grader's own file {file} was changed while the class was graded."
        results = [replace(result, invalid=told) for result in results]
    by_place = dict(zip(order, results, strict=True))
    for student in students:
        for lab, submission in student.submissions.items():
            result = by_place[student.name, lab]
            if not result.invalid and (told := _is_another_now(submission)):
                by_place[student.name, lab] = replace(result, invalid=told)
    return [Row(s, {lab: by_place[s.name, lab] for lab in s.submissions}) for s in students]


def _is_another_now(submission: Submission) -> str:
    """A sentence, if the student's folder does not hold any more what was graded."""
    if submission.kept is None:
        return ""
    part = submission.folder.relative_to(submission.shown_from).as_posix()
    try:
        now = read_snapshot(submission.shown_from, part).files
    except Refused as error:
        return f"Its folder was changed while the class was graded. {error}"
    before = submission.kept.files
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if not changed:
        return ""
    return f"{part}/{changed[0]} was changed in its folder while the class was graded."


def print_class(console: Console, rows: Sequence[Row], labs: Sequence[Lab]) -> None:
    """Student by lab, labs by their numbers so that a class fits on a terminal, and a total."""
    most = sum(lab.points for lab in labs)
    head = [("student", "dim"), *((str(lab.number), "dim") for lab in labs), ("total", "dim")]
    table = [head]
    for row in rows:
        cells = [(_short(row.cell(lab)), _style(row.cell(lab))) for lab in labs]
        table.append([(_one_line(row.student.name), ""), *cells, (f"{row.points}/{most}", "bold")])
    right = frozenset(range(1, len(labs) + 2))
    legend = ", ".join(f"{lab.number} {lab.key}" for lab in labs)
    notes = [f"Labs: {legend}."]
    shown = {row.cell(lab) for row in rows for lab in labs}
    notes += ["-: not handed in, counts 0."] if MISSING in shown else []
    notes += ["!: cannot be graded (see --format json), counts 0."] if BROKEN in shown else []
    if CHANGED in shown:
        notes.append("*: its files were changed, counts 0. Restore them, and grade these again:")
        notes += [
            f"{row.student.name}, {lab}: {result.invalid}"
            for row in rows
            for lab, result in row.results.items()
            if result.invalid
        ]
    show(console, [*columns(table, right=right), Text(""), *(Text(_one_line(n)) for n in notes)])


def _one_line(text: str) -> str:
    """A folder's name may hold what a terminal would obey, and line breaks."""
    return " ".join(clean(without_codes(text)).splitlines())


def _short(cell: str) -> str:
    return {MISSING: "-", BROKEN: "!", CHANGED: "*"}.get(cell, cell)


def _style(cell: str) -> str:
    return {MISSING: "dim", BROKEN: "red", CHANGED: "red"}.get(cell, "")


def write_csv(path: Path, rows: Sequence[Row], labs: Sequence[Lab]) -> None:
    """A column for each lab: points, "missing", "broken" or "changed"; then the total and what it is
    out of.

    Raises OSError.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["student", *(lab.key for lab in labs), "total", "max"])
    most = sum(lab.points for lab in labs)
    for row in rows:
        writer.writerow([as_text(row.student.name), *map(row.cell, labs), row.points, most])
    write_whole(path, text.getvalue())


def as_text(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: with an apostrophe before it, if it could be one.
    A number stays a number."""
    if not cell.startswith(FORMULA) or re.fullmatch(r"[+-]?\d+(\.\d+)?", cell):
        return cell
    return f"'{cell}"


def class_as_json(rows: Sequence[Row], labs: Sequence[Lab], seed: int) -> str:
    table: dict[str, Any] = {
        "version": VERSION,
        "seed": seed,
        "submissions": [
            {
                "student": row.student.name,
                "points": row.points,
                "max_points": sum(lab.points for lab in labs),
                "missing": [lab.key for lab in labs if lab.key not in row.results],
                "labs": [lab_table(result) for result in row.results.values()],
            }
            for row in rows
        ],
    }
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"
