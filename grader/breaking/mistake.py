"""`python -m grader mistake LAB FILE`: a wrong version that keeps full marks, as a candidate for
`grader/known_wrong`."""

import ast
import difflib
import shutil
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from grader.breaking.attacks import read_attacks
from grader.breaking.draw import Version
from grader.breaking.memo import Memo
from grader.breaking.run import FOLDER, attack_all
from grader.machine import what_is_missing
from grader.regions import find_regions
from grader.report.live import LiveLines
from grader.runner import grade_lab
from grader.selfcheck.variants import IGNORED, KnownWrong, reference_folder
from grader.submission import Submission
from grader.verdict import LabResult, Verdict
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.curriculum.progress import source_files
from yaie.system.files import cannot_write, reason, write_whole

TO_FILL_IN = "FILL IN"
SURE = 0.6
"""A file that has less than this in common with each of the reference's is no version of any."""
BAD = (Verdict.FAILED, Verdict.NOT_IMPLEMENTED)
Edit = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A file of the reference, wrong. name: in the package. edits: (old text, new text), each old one
    occurs once in the reference. task: that all edits are in; "" if they are in several, or in none."""

    name: str
    edits: tuple[Edit, ...]
    task: str


def run(lab_key: str, file: Path, out: Console, err: Console, root: Path = ROOT) -> int:
    """Exit status: 0 if a candidate was written, 1 if the grader catches it. Raises ConfigError."""
    lab = load_curriculum()[lab_key]
    if lack := what_is_missing(lab):
        raise ConfigError(lack)
    mistake = read_mistake(lab, file)
    candidate = root / FOLDER / f"{lab.key}.{file.stem}.toml"
    shown = candidate.relative_to(root).as_posix()
    if candidate.exists():  # filled in, perhaps
        raise ConfigError(
            f"{shown} is there already: remove it, or rename {file.name}", param="file"
        )
    with tempfile.TemporaryDirectory(prefix="yaie-mistake-") as scratch:
        folder = Path(scratch).resolve() / lab.key
        shutil.copytree(reference_folder(lab), folder, ignore=IGNORED)
        shutil.copyfile(file, folder / mistake.name)
        submission = Submission(lab, folder, folder.parent)
        with LiveLines(err, [submission]) as live:
            result = grade_lab(submission, on_test=live.on_test)
        out.print(
            f"{lab.key} with this {mistake.name}: {result.points} of {result.max_points} points."
        )
        if caught := _caught(result):
            out.print(caught, soft_wrap=True)
            return 1
        told = _told(lab, mistake, folder, file.stem, root)
    try:
        candidate.parent.mkdir(parents=True, exist_ok=True)
        write_whole(candidate, as_toml(mistake, told))
    except OSError as error:
        raise ConfigError(cannot_write(candidate, error), param="file") from None
    out.print(
        f"Full marks: the grader does not catch it. Wrote {shown}. Fill in what says {TO_FILL_IN}, and "
        f"send it as grader/known_wrong/{lab.key}/{file.stem}.toml; CONTRIBUTING.md says how.",
        soft_wrap=True,
    )
    if not told:
        out.print(
            f"No attack in {FOLDER}/{lab.key}.py tells it from the reference. Add one, or say in the "
            "pull request what it wastes: a version may also be right in another way.",
            soft_wrap=True,
        )
    return 0


def read_mistake(lab: Lab, file: Path) -> Mistake:
    """Which file of the reference it is a version of, and by which edits. Raises ConfigError."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {reason(error)}", param="file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text", param="file") from None
    base = reference_folder(lab)
    same_kind = [
        p for p in source_files(base) if p.suffix == file.suffix and p.name != "explore.py"
    ]
    likeness = {p: _likeness(p.read_text("utf-8"), text) for p in same_kind}
    nearest = max(likeness, key=lambda path: likeness[path], default=None)
    if nearest is None or likeness[nearest] < SURE:
        raise ConfigError(
            f"{file.name} is a version of no file in solutions/{lab.key}: copy one of those, make the "
            "mistake in the copy, and name the copy after the mistake",
            param="file",
        )
    name, right = nearest.relative_to(base).as_posix(), nearest.read_text("utf-8")
    if file.suffix == ".py":
        try:
            same = ast.dump(ast.parse(text)) == ast.dump(ast.parse(right))
        except SyntaxError as error:
            raise ConfigError(
                f"{file.name}, line {error.lineno}: {error.msg}", param="file"
            ) from None
    else:
        same = text.split() == right.split()
    if same:
        raise ConfigError(f"{file.name} does what solutions/{lab.key}/{name} does", param="file")
    edits, lines = edits_between(right, text)
    regions = find_regions(right.splitlines(), nearest)
    # What is put in front of the end of a region is in it.
    tasks = {r.task for r in regions for line in lines if r.begin < line <= r.end}
    inside = all(any(r.begin < line <= r.end for r in regions) for line in lines)
    return Mistake(name, edits, tasks.pop() if inside and len(tasks) == 1 else "")


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.splitlines(), other.splitlines()).ratio()


def edits_between(right: str, wrong: str) -> tuple[tuple[Edit, ...], list[int]]:
    """The edits that make one text of another, each with as many lines around it as make its old text
    the only one; and the first lines, from 0, that they change."""
    old, new = right.splitlines(keepends=True), wrong.splitlines(keepends=True)
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    hunks = [code[1:] for code in codes if code[0] != "equal"]
    spans: list[tuple[int, int, int, int]] = []
    for begin, end, new_begin, new_end in hunks:
        while begin == end or right.count("".join(old[begin:end])) != 1:
            # Lines around a hunk are the same in both.
            if begin > 0:
                begin, new_begin = begin - 1, new_begin - 1
            if end < len(old) and (begin == 0 or right.count("".join(old[begin:end])) != 1):
                end, new_end = end + 1, new_end + 1
            if begin == 0 and end == len(old):
                break
        spans.append((begin, end, new_begin, new_end))
    if any(left[1] > following[0] for left, following in pairwise(spans)):
        begins, ends, new_begins, new_ends = zip(*spans, strict=True)
        spans = [(min(begins), max(ends), min(new_begins), max(new_ends))]
    edits = [("".join(old[a:b]), "".join(new[c:d])) for a, b, c, d in spans]
    return tuple(edits), [hunk[0] for hunk in hunks]


def _caught(result: LabResult) -> str:
    """Where the grader catches it, in a sentence; "" if it keeps full marks.

    Raises ConfigError if a task could not be graded.
    """
    if result.problem is not None:
        return f"The grader catches it already: {result.problem.problem}"
    if result.points == result.max_points:
        return ""
    failed = [each.task.id for each in result.tasks if each.verdict in BAD]
    if not failed:
        raise ConfigError("not every task could be graded now: run it again when less runs")
    noun = "task" if len(failed) == 1 else "tasks"
    return f"The grader catches it already, in {noun} {', '.join(failed)}."


def _told(lab: Lab, mistake: Mistake, mine: Path, name: str, root: Path) -> str:
    """The learner's attack that tells it from the reference; "" if none does."""
    file = root / FOLDER / f"{lab.key}.py"
    if not file.is_file():
        return ""
    edits = tuple((mistake.name, old, new) for old, new in mistake.edits)
    wrong = KnownWrong(name, "", mistake.task, (), "", edits)
    attacks = read_attacks(file, lab.key, file.name)
    rows = attack_all(
        lab, [Version("X", wrong)], attacks, file, reference_folder(lab), Memo.load(lab, root)
    ).rows
    return rows[0].told_by


def as_toml(mistake: Mistake, told_by: str) -> str:
    """A candidate as `grader/known_wrong` has them."""
    comment = f"# {told_by} tells it from the reference.\n" if told_by else ""
    task = mistake.task or TO_FILL_IN
    head = (
        f"{comment}# misconception: what one must believe to write it, in a sentence. task: the one\n"
        "# that must fail; also: those that cannot be right either. says: what its message must say.\n"
        f'misconception = "{TO_FILL_IN}"\ntask = "{task}"\nalso = []\nsays = \'{TO_FILL_IN}\'\n'
    )
    edits = (
        f'\n[[edit]]\nfile = "{mistake.name}"\nold = {_quoted(old)}\nnew = {_quoted(new)}\n'
        for old, new in mistake.edits
    )
    return head + "".join(edits)


def _quoted(text: str) -> str:
    if "'''" not in text:
        return f"'''\n{text}'''"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{escaped}"""'
