"""The command line as a whole: help, versions, errors, and how fast it answers."""

import subprocess
import sys

import pytest

from tests.cli.conftest import Yaie
from yaie import __version__
from yaie.cli import main as cli


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["serve"],
        ["cluster"],
        ["chat"],
        ["generate"],
        ["doctor"],
        ["bench"],
        ["bench", "latency"],
    ],
)
def test_every_command_has_help(yaie: Yaie, command: list[str]) -> None:
    ran = yaie(*command, "--help")
    assert ran.code == 0
    assert "Usage: yaie" in ran.out


def test_version_is_printed(yaie: Yaie) -> None:
    assert yaie("--version").out == f"yaie {__version__}\n"


def test_help_imports_nothing_slow() -> None:
    script = (
        "import sys\n"
        "from yaie.cli.main import main\n"
        "sys.argv = ['yaie', '--help']\n"
        "try:\n    main()\n"
        "finally:\n"
        "    slow = {'torch', 'transformers', 'fastapi', 'prompt_toolkit', 'numpy'}\n"
        "    sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=30)


@pytest.mark.parametrize("command", ["serve", "chat", "generate"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--block-size", "0"], "block_size must be at least 1"),
        (["--mine", "no_such_lab"], "no_such_lab"),
        (["--config", "/no/such/file.toml"], "cannot read the configuration file"),
    ],
)
def test_bad_setting_is_one_paragraph_and_exit_code_2(
    yaie: Yaie, command: str, flags: list[str], said: str
) -> None:
    extra = ["--port", "0"] if command == "serve" else []
    ran = yaie(command, *flags, *extra, stdin="hello")
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b[" not in ran.err


def test_flag_of_a_wrong_type_is_refused_by_name(yaie: Yaie) -> None:
    ran = yaie("serve", "--token-budget", "many")
    assert ran.code == 2
    assert "--token-budget" in ran.err


def test_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_it_runs_as_a_module_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "yaie", "--version"], capture_output=True, text=True
    )
    assert ran.stdout == f"yaie {__version__}\n"
