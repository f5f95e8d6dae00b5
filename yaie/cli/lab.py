"""`yaie lab`: where you stand in the labs, and the grader's commands under the same roof.

The grader is run as a program of its own and never imported: an engine that is installed without it
works the same.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec

import typer
from rich.table import Table

from yaie.cli.console import say, show_table
from yaie.cli.demo import demo
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.curriculum.progress import Progress
from yaie.parts import by_progress, find_mine
from yaie.system.interrupt import leave_message_to_others

TOLD_SECONDS = 0.5
"""In which an interrupted grader ends, if the terminal has told it."""

lab_app = typer.Typer(
    name="lab",
    help="Where you stand in the labs; and demo, grade, watch, hint, reset, upgrade, break.",
    invoke_without_command=True,
)


@lab_app.callback()
def overview(context: typer.Context) -> None:
    """List the labs with your points, and what comes next."""
    if context.invoked_subcommand is not None:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("lab")
    table.add_column("package", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("why")
    table.add_column("chapter")
    unfinished = []
    for lab in load_curriculum().labs:
        points = points_of(lab)
        _, why = by_progress(lab)
        style = "bold green" if points == lab.points else ""
        cells = (str(lab.number), lab.key, f"{points}/{lab.points}", why, lab.chapter)
        table.add_row(*cells, style=style)
        if points < lab.points:
            unfinished.append(lab.key)
    show_table(table)
    if unfinished:
        say(f"\nNext: yaie lab grade {unfinished[0]}, or make grade LAB={unfinished[0]}")
        sheet = f"book/src/labs/{unfinished[0]}.md"
        if (ROOT / sheet).is_file():  # an installed engine has no book
            say(f"Its tasks, one by one: {sheet}, or make docs-serve")
    else:
        say("\nEvery lab has passed: yaie serve runs on your parts alone.")


lab_app.command()(demo)


def points_of(lab: Lab) -> int:
    """The points that hold on the learner's source as it is now."""
    folder = find_mine(lab.key)
    if folder is None:
        return 0
    passed = Progress.load(folder.parent.parent).passed_tasks(lab, folder)
    return sum(task.points for task in lab.tasks if task.id in passed)


def _hand_on(context: typer.Context) -> None:
    """Run the grader's command of this name with the same words, and end as it ends."""
    if find_spec("grader") is None:
        raise ConfigError("the graders are not installed here; work in a clone of the repository")
    command = [sys.executable, "-m", "grader", str(context.info_name), *context.args]
    raise typer.Exit(_run(command))


def _run(command: list[str]) -> int:
    """Its exit status. Ctrl-C in a terminal reaches it, too, and is waited for: it cleans up."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except BaseException:
        leave_message_to_others()
        with suppress(subprocess.TimeoutExpired):
            process.wait(TOLD_SECONDS)
        if process.poll() is None:  # only this process was told
            process.send_signal(signal.SIGINT)
            process.wait()
        raise


for _name, _help in {
    "grade": "Grade a lab, or all of them.",
    "watch": "Grade a lab again whenever you save.",
    "hint": "One more hint, of four, for a task.",
    "reset": "Restore a lab's stubs; your files are kept.",
    "upgrade": "Carry finished work over to stubs that have changed; your files are kept.",
    "break": "After a finished lab: catch ten wrong versions of it, with scripts.",
}.items():
    lab_app.command(
        _name,
        help=_help,
        add_help_option=False,  # the grader has a better one
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_hand_on)
