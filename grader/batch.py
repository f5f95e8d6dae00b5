"""A folder of submissions: `python -m grader grade --submissions DIR`.

Every subfolder is a student's, with their labs in it, as <lab>/ or as labs/<lab>/. Whatever one
submission does, it changes no other's row: each lab of each student has a process of its own.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from grader.report.formats import VERSION, lab_table
from grader.report.lines import columns, show
from grader.submission import Submission, submission_in
from grader.verdict import LabResult
from yaie.core.errors import ConfigError
from yaie.core.files import write_whole
from yaie.curriculum.manifest import Lab

MISSING = "missing"
BROKEN = "broken"


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
        """Points, or why there are none. A part that cannot be imported earns nothing, and says so."""
        result = self.results.get(lab.key)
        if result is None:
            return MISSING
        return str(result.points) if result.problem is None else BROKEN


def find_students(folder: Path, labs: Sequence[Lab]) -> list[Student]:
    """Raises ConfigError if there are none, or none of them has any of the labs."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", param="submissions")
    students = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith((".", "__")):
            found = {lab.key: submission_in(path, lab) for lab in labs}
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
    order = [(s.name, lab) for s in students for lab in s.submissions]
    results = grade([submission for s in students for submission in s.submissions.values()])
    by_place = dict(zip(order, results, strict=True))
    return [Row(s, {lab: by_place[s.name, lab] for lab in s.submissions}) for s in students]


def print_class(console: Console, rows: Sequence[Row], labs: Sequence[Lab]) -> None:
    """Student by lab, labs by their numbers so that a class fits on a terminal, and a total."""
    most = sum(lab.points for lab in labs)
    head = [("student", "dim"), *((str(lab.number), "dim") for lab in labs), ("total", "dim")]
    table = [head]
    for row in rows:
        cells = [(_short(row.cell(lab)), _style(row.cell(lab))) for lab in labs]
        table.append([(row.student.name, ""), *cells, (f"{row.points}/{most}", "bold")])
    right = frozenset(range(1, len(labs) + 2))
    legend = ", ".join(f"{lab.number} {lab.key}" for lab in labs)
    notes = [f"Labs: {legend}."]
    shown = {row.cell(lab) for row in rows for lab in labs}
    notes += ["-: not handed in, counts 0."] if MISSING in shown else []
    notes += ["!: cannot be graded (see --format json), counts 0."] if BROKEN in shown else []
    show(console, [*columns(table, right=right), Text(""), *map(Text, notes)])


def _short(cell: str) -> str:
    return {MISSING: "-", BROKEN: "!"}.get(cell, cell)


def _style(cell: str) -> str:
    return {MISSING: "dim", BROKEN: "red"}.get(cell, "")


def write_csv(path: Path, rows: Sequence[Row], labs: Sequence[Lab]) -> None:
    """A column for each lab: points, "missing" or "broken"; then the total and what it is out of.

    Raises OSError.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["student", *(lab.key for lab in labs), "total", "max"])
    most = sum(lab.points for lab in labs)
    for row in rows:
        writer.writerow([row.student.name, *map(row.cell, labs), row.points, most])
    write_whole(path, text.getvalue())


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
