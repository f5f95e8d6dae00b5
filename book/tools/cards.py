"""A lab's card on its sheet: what the manifest says, the commands, the hints, the learner's points."""

import os

from book.tools.contents import duration, exploration_of
from book.tools.markup import escape, inline
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import Lab, Task, load_curriculum
from yaie.curriculum.progress import Progress, part_digest

RUNGS = {
    "question": "A question",
    "invariant": "The invariant",
    "example": "A smallest example",
    "shape": "The shape of the code",
}
"""The keys of a hint file, in the order in which they are climbed."""
SERVED = "YAIE_BOOK_PROGRESS"
"""Set while `make docs-serve` runs: only then does a page show what its reader has passed."""
VERIFIED = {
    "cpu": "on any CPU",
    "triton-interpreter": "in Triton's interpreter",
    "cuda-on-cpu": "on the grader's CUDA runtime for CPUs",
    "gpu": "on a GPU",
}
SHOW = "make show LAB={key}"
COMMANDS = {
    "make grade LAB={key}": "grade all tasks, or one: <code>TASK={first}</code>",
    "make watch LAB={key}": "grade again whenever you save",
    "make hint LAB={key} TASK={first}": "one more hint, of four",
    SHOW: "the article's figures, recorded from your code",
    "make notebook LAB={key}": "draw what your code does",
}


def render_card(key: str) -> str:
    """The card as HTML in one line. Raises ConfigError for a lab that does not exist."""
    lab = load_curriculum()[key]
    passed = _passed(lab)
    rows = "".join(_row(task, passed) for task in lab.tasks)
    commands = "".join(
        f"<dt><code>{command.format(key=key, first=lab.tasks[0].id)}</code></dt>"
        f"<dd>{what.format(first=lab.tasks[0].id)}</dd>"
        for command, what in COMMANDS.items()
        if command != SHOW or _has_recorder(key)
    )
    return (
        f'<section class="lab-card" id="lab-{key}" aria-labelledby="lab-{key}-title">'
        f'<p class="lab-title" id="lab-{key}-title">Tasks and commands</p>'
        f"<p>{_facts(lab)}</p>{_points(lab, passed)}"
        '<table class="tasks"><thead><tr><th>task</th><th>what</th><th>points</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f"<dl>{commands}</dl><p>Plugged in: {inline(lab.plugged_in)}.</p>{exploration_of(key)}"
        f"{_hints(lab)}</section>"
    )


def _has_recorder(key: str) -> bool:
    """Whether a figure can be recorded from this lab's part. Read, not imported: some need torch."""
    recorders = (ROOT / "book/tools/traces").glob("*.py")
    return any(f'LAB = "{key}"' in path.read_text("utf-8") for path in recorders)


def _facts(lab: Lab) -> str:
    titles = [load_curriculum()[key].title for key in lab.after]
    after = f" Builds on: {escape(', '.join(titles))}." if titles else " Needs no other lab."
    graded = " and ".join(VERIFIED[place] for place in lab.verify)
    return (
        f"You write <code>labs/{lab.key}/</code>: {len(lab.tasks)} tasks, {lab.points} points, "
        f"{duration(lab.minutes)}.{after} Graded {graded}."
    )


def _passed(lab: Lab) -> tuple[str, ...] | None:
    """The tasks that hold on the learner's present source; None in a book that is not served."""
    if not os.environ.get(SERVED):
        return None
    return Progress.load(ROOT).passed_tasks(lab, ROOT / "labs" / lab.key)


def _points(lab: Lab, passed: tuple[str, ...] | None) -> str:
    if passed is None:
        return ""
    points = sum(task.points for task in lab.tasks if task.id in passed)
    says = f"You have {points} of {lab.points} points."
    record = Progress.load(ROOT).records.get(lab.key)
    if record and record.digest != part_digest(ROOT / "labs" / lab.key):
        says = (
            f"{record.points} of {lab.points} points when last graded; your code has changed since."
        )
    return (
        f'<p class="lab-points"><progress max="{lab.points}" value="{points}"'
        f' aria-label="points in this lab"></progress>'
        f" {says}</p>"
    )


def _row(task: Task, passed: tuple[str, ...] | None) -> str:
    mark = ' <span class="passed">✓ passed</span>' if passed and task.id in passed else ""
    return f"<tr><td>{task.id}</td><td>{inline(task.title)}{mark}</td><td>{task.points}</td></tr>"


def _hints(lab: Lab) -> str:
    hints = tomllib.loads((ROOT / f"grader/hints/{lab.key}.toml").read_text("utf-8"))
    tasks = "".join(
        f"<details><summary>{task.id} {inline(task.title)}</summary>"
        + "".join(
            f"<details><summary>{title}</summary>{_hint(hints[task.id][rung])}</details>"
            for rung, title in RUNGS.items()
        )
        + "</details>"
        for task in lab.tasks
    )
    return (
        '<details class="hints"><summary>Hints, one rung at a time</summary>'
        f"<p>The same as <code>make hint</code> gives. Open one, then think again.</p>{tasks}</details>"
    )


def _hint(text: str) -> str:
    """Prose, or verbatim if a line of it is indented."""
    if any(line.startswith("  ") for line in text.splitlines()):
        # Entities for line ends: Markdown ends a block of HTML at an empty line.
        return f"<pre>{escape(text.strip()).replace(chr(10), '&#10;')}</pre>"
    # Not Markdown: the terminal shows the same text, where stars and underscores are themselves.
    return f"<p>{escape(' '.join(text.split()))}</p>"
