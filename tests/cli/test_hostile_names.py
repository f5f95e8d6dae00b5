"""Names that hold markup, emoji codes and codes for the terminal, in each view of the command line."""

import io
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.bench import report
from yaie.bench.kernels import show as kernels
from yaie.cli import build_kernels, console, doctor
from yaie.cli.doctor_kernels import Finding
from yaie.cli.serve import announce
from yaie.cli.steps import Share, Step, StepLog
from yaie.core.errors import YaieError
from yaie.engine.llm_engine import LLMEngine
from yaie.models.loading_bar import loading_bar
from yaie.parts import Part
from yaie.server.settings import ServerSettings
from yaie.system.terminal import Terminal, printable

NAME = "m[/x][red]:boom:\x1b[2J"
SHOWN = r"m[/x][red]:boom:\x1b[2J"


def _start_lines() -> None:
    info = replace(FakeEngine().info, dtype_note=NAME, backend_note=NAME)
    announce(info, ServerSettings(served_model_name=NAME), "http://127.0.0.1:1")


def _backend() -> None:
    console.show_backend(replace(FakeEngine().info, backend_note=NAME, dtype_note=NAME))


def _parts() -> None:
    part = Part("sampler", "yours", f"labs.{NAME}", NAME)
    console.show_parts([part])


def _all_parts_the_reference() -> None:
    console.show_parts([Part("sampler", "reference", "x", NAME)], brief=True)


def _built() -> None:
    build_kernels._print([build_kernels.Outcome(NAME, NAME, why=f"{NAME} does not compile")])


def _steps() -> None:
    log = StepLog(cast(LLMEngine, FakeEngine()), [])
    log._steps = [Step({NAME: Share(NAME, 1, [ord(each) for each in NAME])}, [NAME], 1)]
    console.show_table(log.table(300))


VIEWS: list[Callable[[], None]] = [
    _start_lines,
    _backend,
    _parts,
    _all_parts_the_reference,
    _built,
    _steps,
    lambda: console.say(NAME),
    lambda: console.note(NAME),
    lambda: console.show_error(YaieError(f"no model is called {NAME}")),
    lambda: doctor._print([Finding(NAME, False, NAME, NAME)]),
    lambda: report.show(NAME, [NAME, "b"], [[NAME, 1]], [NAME]),
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written on stdout and stderr, as on a terminal without colours."""
    file = io.StringIO()
    one = Terminal(file=file, width=300, force_terminal=True, color_system=None)
    for module in (console, report, kernels, build_kernels):
        for name in ("out", "err"):
            monkeypatch.setattr(module, name, one, raising=False)
    return file


@pytest.mark.parametrize("view", VIEWS)
def test_a_name_is_shown_as_it_is(terminal: io.StringIO, view: Callable[[], None]) -> None:
    view()
    said = terminal.getvalue()
    assert SHOWN in said
    assert printable(said) == said


def test_a_bar_for_loading_shows_the_name_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with loading_bar(NAME, 10, True) as advance:
        advance(5)
    said = capsys.readouterr().err
    assert "Loading m[/x][red]:boom:[2J" in said
    assert "\x1b[2J" not in said


def test_a_warning_that_no_log_takes_holds_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    console.escape_warnings()
    record = logging.LogRecord("yaie", logging.WARNING, "", 0, "%s is odd", (NAME,), None)
    assert logging.lastResort is not None
    logging.lastResort.handle(record)
    assert capsys.readouterr().err == f"{SHOWN} is odd\n"


@pytest.mark.parametrize("command", [["generate", "x"], ["chat"], ["bench", "latency"], ["serve"]])
def test_a_folder_that_is_not_there_is_named_as_it_is(yaie: Yaie, command: list[str]) -> None:
    ran = yaie(*command, "--model", f"/no/{NAME}")
    assert ran.code == 2
    assert f"there is no folder '/no/{SHOWN}'" in ran.err
    assert printable(ran.out + ran.err) == ran.out + ran.err
