"""The entry point: `yaie serve`, `cluster`, `chat`, `generate`, `top`, `quantize`, `bench` and others.

Errors that were raised on purpose are one paragraph on stderr and exit code 2; any other shows its
traceback, because it is a bug.
"""

import sys
from typing import Annotated

import typer

from yaie import __version__
from yaie.cli.bench import bench_app
from yaie.cli.bench_scale import scale  # noqa: F401  (importing registers it)
from yaie.cli.build_kernels import build_kernels
from yaie.cli.chat import chat
from yaie.cli.cluster import cluster
from yaie.cli.console import escape_warnings, show_error
from yaie.cli.doctor import doctor
from yaie.cli.generate import generate
from yaie.cli.lab import lab_app
from yaie.cli.quantize import quantize
from yaie.cli.serve import serve
from yaie.cli.top import top
from yaie.cli.variables import unknown_variables, warn_of_unknown_variables
from yaie.core.errors import YaieError
from yaie.system.gc_tuning import end_quickly
from yaie.system.interrupt import is_interrupted
from yaie.system.streams import sound_streams
from yaie.system.thread_niceness import spin_less

app = typer.Typer(
    name="yaie",
    help="YAIE: an LLM inference engine that you build yourself, and the engine that it becomes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(cluster)
app.command()(chat)
app.command()(generate)
app.command()(top)
app.command()(quantize)
app.command()(doctor)
app.command()(build_kernels)
app.add_typer(bench_app, name="bench")
app.add_typer(lab_app, name="lab")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"yaie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    if {"-h", "--help"}.intersection(sys.argv):
        return  # a page of help is of use whatever the environment holds
    if context.invoked_subcommand == "serve":
        unknown_variables()  # what it warns of belongs into its log, which is not open yet
    else:
        warn_of_unknown_variables()


@sound_streams
def main() -> None:
    """Run the command line."""
    end_quickly()
    spin_less()
    escape_warnings()
    try:
        app(prog_name="yaie")
    except YaieError as error:
        if not is_interrupted():
            show_error(error)
        raise SystemExit(2) from None
