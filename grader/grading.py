"""`make grade`: which labs and tasks are meant, what is shown of them, and what is remembered."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from grader.batch import class_as_json, find_students, grade_students, print_class, write_csv
from grader.record import record
from grader.report.formats import as_gradescope, as_json, as_junit
from grader.report.live import LiveLines
from grader.report.tables import print_progress
from grader.report.text import print_report
from grader.runner import Limits, grade_labs
from grader.scratch import with_replay
from grader.submission import Submission, find_submission, submission_in
from grader.verdict import Explanation, LabResult, TaskResult
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Curriculum, Lab, load_curriculum
from yaie.curriculum.progress import Progress
from yaie.system.files import cannot_write, refuse_unwritable, write_whole
from yaie.system.terminal import Terminal

FORMATS = ("text", "json", "junit", "gradescope")


@dataclass(frozen=True, slots=True)
class Request:
    """What `grade` was asked for; the options of the command line."""

    lab: str = ""
    task: str = ""
    seed: int = 0
    impl: str = "labs"
    format: str = "text"
    output: Path | None = None
    submissions: Path | None = None
    csv: Path | None = None
    jobs: int | None = None
    limits: Limits = field(default_factory=Limits)


def run(request: Request, out: Console, err: Console) -> int:
    """Grade and report. Exit status: 0 if every point was earned, 1 if not. Raises ConfigError."""
    _refuse_what_contradicts(request)
    curriculum = load_curriculum()
    labs, tasks = choose(curriculum, request.lab, request.task)
    for path, param in ((request.output, "output"), (request.csv, "csv")):
        if path is not None:
            refuse_unwritable(path, param)
    if request.output is None:
        return _run(request, labs, tasks, out, err)
    report = io.StringIO()
    code = _run(request, labs, tasks, Terminal(file=report), err)
    _keep(request.output, partial(write_whole, text=report.getvalue()), "output")
    err.print(f"Wrote {request.output}", soft_wrap=True)
    return code


def _run(request: Request, labs: list[Lab], tasks: list[str], out: Console, err: Console) -> int:
    if request.submissions is not None:
        return _grade_class(request, labs, tasks, out, err)
    return _grade_one(request, labs, tasks, out, err)


def choose(curriculum: Curriculum, lab: str, task: str) -> tuple[list[Lab], list[str]]:
    """The labs and the ids of the tasks that are meant; no task means all. Raises ConfigError."""
    if lab:
        chosen = curriculum[lab]
        return [chosen], [chosen.task(task).id] if task else []
    if task:
        number = task.partition(".")[0] if "." in task else ""
        guess = next(
            (each.key for each in curriculum.labs if str(each.number) == number), "radix_tree"
        )
        raise ConfigError(f"a task needs its lab: make grade LAB={guess} TASK={task}", param="task")
    return list(curriculum.labs), []


def _refuse_what_contradicts(request: Request) -> None:
    if request.format not in FORMATS:
        known = ", ".join(FORMATS)
        raise ConfigError(f"unknown format {request.format!r}; choose from {known}", param="format")
    if request.csv and not request.submissions:
        raise ConfigError("--csv goes with --submissions", param="csv")
    if request.submissions and request.format not in ("text", "json"):
        raise ConfigError("--submissions prints text or json", param="format")
    if request.submissions and request.impl != "labs":
        raise ConfigError("--submissions and --impl exclude each other", param="impl")


def _grade_one(
    request: Request, labs: list[Lab], tasks: list[str], out: Console, err: Console
) -> int:
    if request.lab:
        found: list[Submission | None] = [find_submission(labs[0], request.impl)]
    else:
        found = [_find(lab, request.impl) for lab in labs]
        if not any(found):
            find_submission(labs[0], request.impl)  # raises, and says what is expected
    submissions = [s for s in found if s is not None]
    graded = _grade(submissions, request, tasks, err)
    is_mine = request.impl == "labs"
    if is_mine and tasks and _completes(graded[0]):
        graded = _grade(submissions, request, [], err)
    by_lab = {result.lab.key: result for result in graded}
    results = [by_lab.get(lab.key) or _missing(lab, request.impl) for lab in labs]
    unkept: list[str] = []
    withdrawn = (
        {result.lab.key: record(result, complain=unkept.append) for result in graded}
        if is_mine
        else {}
    )
    match request.format:
        case "json":
            text = as_json(results, seed=request.seed, impl=request.impl, withdrawn=withdrawn)
            _write(out, text)
        case "junit":
            _write(out, as_junit(results))
        case "gradescope":
            _write(out, as_gradescope(results))
        case _ if request.lab:
            if (submission := found[0]) is not None:
                results[0] = with_replay(results[0], submission, request.seed)
            passed, earlier = _passed(labs[0]) if is_mine else ((), ())
            lost = withdrawn.get(request.lab, ())
            print_report(out, results[0], lost, request.impl, passed, earlier)
        case _:
            print_progress(out, results, withdrawn, request.impl)
    for sentence in dict.fromkeys(unkept):  # once, however many labs there are
        err.print(sentence, style="yellow", soft_wrap=True)
    return int(any(result.points < result.max_points for result in results))


def _completes(result: LabResult) -> bool:
    """Whether with these tasks the last ones of a lab have passed. Then all are graded together: the
    engine is tried on the part before it is called complete."""
    before, _ = _passed(result.lab)
    every = {task.id for task in result.lab.tasks}
    return len(before) < len(every) and every <= {*before, *result.passed}


def _passed(lab: Lab) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """By the record of progress: the tasks with a pass on the learner's files as they are, and those
    that passed before the files changed."""
    progress, folder = Progress.load(ROOT), ROOT / "labs" / lab.key
    return progress.passed_tasks(lab, folder), progress.earlier_passes(lab, folder)


def _grade_class(
    request: Request, labs: list[Lab], tasks: list[str], out: Console, err: Console
) -> int:
    """Exit status 0 whatever the points: a class is graded, not passed. 1 if a grade does not count,
    because files were changed meanwhile."""
    assert request.submissions is not None
    students = find_students(request.submissions, labs)
    rows = grade_students(students, partial(_grade, request=request, tasks=tasks, err=err))
    if request.csv is not None:
        _keep(request.csv, partial(write_csv, rows=rows, labs=labs), "csv")
    if request.format == "json":
        _write(out, class_as_json(rows, labs, request.seed))
    else:
        print_class(out, rows, labs)
    return int(any(result.invalid for row in rows for result in row.results.values()))


def _grade(
    submissions: Sequence[Submission], request: Request, tasks: Sequence[str], err: Console
) -> list[LabResult]:
    with LiveLines(err, submissions) as live:
        return grade_labs(
            submissions,
            tasks=tasks,
            seed=request.seed,
            limits=request.limits,
            jobs=request.jobs,
            on_done=live.on_done,
            on_test=live.on_test,
        )


def _find(lab: Lab, impl: str) -> Submission | None:
    """One of many: a folder that is a part itself cannot be meant for all of them."""
    folder = ROOT / impl if impl in ("labs", "solutions") else Path(impl)
    found = submission_in(folder, lab)
    return Submission(lab, found.folder) if found and folder == ROOT / impl else found


def _missing(lab: Lab, impl: str) -> LabResult:
    problem = Explanation("The lab is there.", f"{impl} holds no folder {lab.key}.")
    return LabResult(lab, tuple(TaskResult(task, ()) for task in lab.tasks), problem=problem)


def _keep(path: Path, write: Callable[[Path], None], param: str) -> None:
    """Raises ConfigError if the file cannot be written."""
    try:
        write(path)
    except OSError as error:
        raise ConfigError(cannot_write(path, error), param=param) from None


def _write(out: Console, text: str) -> None:
    """To the byte: no wrapping, no markup, no colour."""
    file = out.file if out.file is not None else sys.stdout
    file.write(text)
    file.flush()
