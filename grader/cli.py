"""The grader's command line: what each option is called. The work is done in modules of their own."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text
from typer.core import TyperGroup

from grader.selfcheck.cli import selfcheck
from grader.selfcheck.habits.cli import habits
from yaie.cli.variables import warn_of_unknown_variables
from yaie.core.errors import ConfigError, YaieError
from yaie.system.interrupt import STATUS as STOPPED
from yaie.system.interrupt import is_interrupted
from yaie.system.streams import sound_streams
from yaie.system.terminal import Terminal

out = Terminal()
err = Terminal(stderr=True)

LabArgument = Annotated[str, typer.Argument(help="A lab, as radix_tree.", show_default=False)]
TaskOption = Annotated[str, typer.Option(help="A task, as 4.2 or 2.", show_default=False)]


class Commands(TyperGroup):
    """What was refused on purpose is one line and exit status 2; Ctrl-C is 130 and nothing left over."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        try:
            if not {"-h", "--help"}.intersection(sys.argv):
                warn_of_unknown_variables()
            return super().invoke(ctx)
        except YaieError as error:
            if is_interrupted():
                raise typer.Exit(STOPPED) from None
            err.print(Text("Error:", "bold red"), error.message, soft_wrap=True)
            raise typer.Exit(2) from None
        except (KeyboardInterrupt, typer.Abort):  # `Interruptible` says so
            if is_interrupted():
                raise typer.Exit(STOPPED) from None
            raise


def _leave(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C: workers are killed, the terminal is as it was."""
    sys.exit(128 + number)


app = typer.Typer(
    cls=Commands,
    help="Grade the labs: each in a process of its own, with limits on time and memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@sound_streams
def main() -> None:
    app(prog_name="python -m grader")


@app.command()
def grade(
    lab: Annotated[str, typer.Argument(help="A lab; all of them if left out.")] = "",
    task: Annotated[str, typer.Option(help="Only this task of the lab, as 4.2 or 2.")] = "",
    seed: Annotated[int, typer.Option(help="Of every generated example.")] = 0,
    impl: Annotated[
        str, typer.Option(help="What is graded: labs, solutions, or a folder (relative to yours).")
    ] = "labs",
    format: Annotated[str, typer.Option(help="text, json, junit or gradescope.")] = "text",
    output: Annotated[
        Path | None, typer.Option(help="Write there instead of on the terminal.")
    ] = None,
    submissions: Annotated[
        Path | None, typer.Option(help="Grade a class: a folder with a subfolder for each student.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="The class's table as a file.")] = None,
    jobs: Annotated[int, typer.Option(help="Labs at once; 0: one for each core.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="Limit for each lab.", min=1)] = 60.0,
    memory: Annotated[float, typer.Option(help="Limit for each lab, in GiB.", min=0.5)] = 2.0,
) -> None:
    """Grade one lab, or all of them.

    Exit status: 0 if every point was earned (a class: if all are graded), 1 if not, 2 if asked nonsense.
    """
    from grader.grading import Request, run
    from grader.runner import Limits

    request = Request(
        lab=lab,
        task=task,
        seed=seed,
        impl=impl,
        format=format,
        output=output,
        submissions=submissions,
        csv=csv,
        jobs=jobs or None,
        limits=Limits(seconds=seconds, memory_gib=memory),
    )
    raise typer.Exit(run(request, out, err))


@app.command()
def watch(
    lab: Annotated[str, typer.Argument(help="A lab; the first open one if left out.")] = "",
    seed: Annotated[int, typer.Option(help="Of every generated example.")] = 0,
) -> None:
    """Grade again whenever you save. Keys: h hint, n next, r reset, g grade, q quit."""
    from grader.terminal import run_watch

    run_watch(lab, seed, out)


@app.command()
def hint(
    lab: LabArgument,
    task: Annotated[str, typer.Option(help="As 4.2 or 2; the first open one if left out.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Show what you have seen, no more.")
    ] = False,
) -> None:
    """Climb one rung of a task's hints: a question, the invariant, an example, the shape of the code."""
    from grader.hints import give_hint
    from grader.report.lines import show
    from yaie.curriculum.manifest import load_curriculum

    show(out, give_hint(load_curriculum()[lab], task, again=again, width=out.width))


@app.command()
def reset(
    lab: LabArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Restore a lab's stubs. Your files are kept in .yaie/backups."""
    from grader.reset import reset_lab
    from yaie.curriculum.manifest import load_curriculum

    chosen = load_curriculum()[lab]
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("reset asks first, and this is no terminal; say --yes")
        typer.confirm(f"Restore the stubs of {lab}? Your files go to .yaie/backups.", abort=True)
    out.print(reset_lab(chosen).describe(chosen), soft_wrap=True)


@app.command()
def upgrade(
    lab: Annotated[str, typer.Argument(help="A lab; all of them if left out.")] = "",
) -> None:
    """Carry finished work over to stubs that have changed since. Your files are kept in .yaie/backups.

    Exit status: 0 if what had passed passes again, 1 if something is left to do, which is listed.
    """
    from grader.upgrade.run import run

    raise typer.Exit(run(lab, out))


@app.command("break")
def break_(
    lab: LabArgument,
    number: Annotated[
        int, typer.Option("--round", help="Another ten versions, from 1 on.", min=1)
    ] = 1,
    show: Annotated[
        str, typer.Option(help="Be shown a version, as A; it then counts no more.")
    ] = "",
) -> None:
    """After a finished lab: catch ten wrong versions of it, with scripts that you write.

    Exit status: 0 if all ten are caught, 1 if not.
    """
    from grader.breaking.run import run

    raise typer.Exit(run(lab, number, show, out, err))


@app.command()
def mistake(
    lab: LabArgument,
    file: Annotated[
        Path,
        typer.Argument(help="A wrong version of one of the reference's files.", show_default=False),
    ],
) -> None:
    """Write down a wrong version that keeps full marks, as a known mistake to send.

    Exit status: 0 if a candidate was written, 1 if the grader catches it already.
    """
    from grader.breaking.mistake import run

    raise typer.Exit(run(lab, file, out, err))


app.command()(selfcheck)
app.command()(habits)
