"""`make setup` says what was in its way, and what to do about it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.cli import set_up
from yaie.cli.set_up import LITTLE_SPACE, explain

ROOT = Path(__file__).parents[2]
MUCH = 2**40
# As pip 23 to 26 and venv wrote it.
SAID = {
    "The disk is full": [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "Error: [Errno 28] No space left on device: '.venv/bin/python3'",
    ],
    ".venv cannot be written": [
        "Error: [Errno 30] Read-only file system: '/mnt/yaie/.venv'",
        "Error: [Errno 13] Permission denied: '/opt/yaie/.venv'",
    ],
    "pip could not reach the package index": [
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by "
            "'NewConnectionError('<HTTPConnection object at 0x7fa9>: Failed to establish a new "
            "connection: [Errno 111] Connection refused')'\n"
            "ERROR: No matching distribution found for hatchling>=1.27"
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement hatchling>=1.27 "
            "(from versions: none)\nERROR: No matching distribution found for hatchling>=1.27"
        ),
        (
            "WARNING: Retrying after connection broken by 'NameResolutionError(\"...: Failed to resolve "
            "'index.invalid' ([Errno -3] Temporary failure in name resolution)\")'"
        ),
        "ERROR: HTTPSConnectionPool(host='index', port=443): Read timed out. ReadTimeoutError",
        "Cannot connect to proxy. ProxyError('Unable to connect to proxy')",
    ],
    "A package has no wheel": [
        (
            "error: command 'gcc' failed: No such file or directory\n"
            "ERROR: Failed building wheel for psutil"
        ),
        "error: command '/usr/bin/x86_64-linux-gnu-g++' failed with exit code 1",
        'error: Microsoft Visual C++ 14.0 or greater is required. Get it with "Build Tools"',
        "../meson.build:1:0: ERROR: Unknown compiler(s): [['cc'], ['gcc'], ['clang']]",
    ],
    "The versions in constraints.txt cannot all be had": [
        (
            "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 "
            "(from versions: none)\nERROR: No matching distribution found for torch==2.13.0"
        ),
        (
            "ERROR: Cannot install yaie[dev]==0.1.0 because these package versions have conflicting "
            "dependencies.\nERROR: ResolutionImpossible: for help visit ..."
        ),
    ],
    "The set-up failed: what pip says above": ["AssertionError in pip itself"],
}


@pytest.mark.parametrize(
    ("said", "meant"), [(said, meant) for meant, each in SAID.items() for said in each]
)
def test_what_pip_says_is_explained(said: str, meant: str) -> None:
    told = explain(said, ".venv", MUCH)
    assert told.startswith(meant)
    assert "{" not in told
    assert max(map(len, told.splitlines())) <= 100


def test_each_explanation_names_a_command_to_run() -> None:
    for each in SAID.values():
        told = explain(each[0], ".venv", MUCH)
        assert "make setup" in told or "make clean setup" in told or "apt install" in told


def test_a_disk_so_full_that_pip_could_not_say_so_is_seen() -> None:
    silent = "Error: Command '[..., 'ensurepip']' returned non-zero exit status 1."
    assert explain(silent, ".venv", LITTLE_SPACE - 1).startswith("The disk is full")
    assert explain(silent, ".venv", LITTLE_SPACE).startswith("The set-up failed")
    # Little space is not the reason for everything.
    assert explain(SAID["A package has no wheel"][0], ".venv", 0).startswith(
        "A package has no wheel"
    )


def test_what_a_step_writes_is_passed_on_and_its_status_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = "import sys; print('bars'); print('why', file=sys.stderr); sys.exit(3)"
    assert set_up.run([sys.executable, "-c", code]) == (3, "why\n")
    assert capfd.readouterr() == ("bars\n", "why\n")
    assert set_up.run(["/nowhere/python"])[0] == 1


def test_pip_gets_the_callers_options_and_all_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(set_up, "run", lambda command: commands.append(command) or (0, ""))
    assert set_up.main([".venv", "--index-url", "https://index.invalid"]) == 0
    make, fill = commands
    assert make == [sys.executable, "-m", "venv", ".venv"]
    assert fill[:6] == [
        ".venv/bin/python", "-m", "pip", "install", "--index-url", "https://index.invalid",
    ]  # fmt: skip
    assert fill[6:] == ["--constraint", "constraints.txt", "--editable", ".[dev]"]


def test_what_fails_first_is_explained_and_nothing_comes_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    said = SAID[".venv cannot be written"][0]
    monkeypatch.setattr(set_up, "run", lambda command: commands.append(command) or (1, said))
    assert set_up.main([".venv"]) == 1
    assert len(commands) == 1
    assert ".venv cannot be written" in capsys.readouterr().err


def interrupted(_command: object) -> tuple[int, str]:
    raise KeyboardInterrupt


def test_ctrl_c_is_no_fault_of_pips(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(set_up, "run", interrupted)
    assert set_up.main([".venv"]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == ""


def make_setup(folder: Path, *variables: str, **environment: str) -> str:
    """What a failing `make setup` for an environment in `folder` writes on stderr."""
    ran = subprocess.run(
        ["make", "-C", str(ROOT), "setup", f"VENV={folder / 'venv'}", *variables],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert not (folder / "venv/.yaie-ready").exists()
    return ran.stderr


def test_an_interpreter_that_will_not_do_is_named(tmp_path: Path) -> None:
    assert "Install one" in make_setup(tmp_path, "PYTHON=")
    assert "; /nowhere/python is not that." in make_setup(tmp_path, "PYTHON=/nowhere/python")
    bare = tmp_path / "python"  # as Debian's without python3-venv
    bare.write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    bare.chmod(0o755)
    assert "apt install python3-venv" in make_setup(tmp_path, f"PYTHON={bare}")


def test_the_makefile_runs_it_and_stops_where_it_fails(tmp_path: Path) -> None:
    """Without a package that stands below a file: that needs no network to fail."""
    (tmp_path / "venv").touch()
    told = make_setup(tmp_path, f"PYTHON={sys.executable}")
    assert "The set-up failed" in told


@pytest.mark.nightly
@pytest.mark.slow
def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    alone = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "",
             "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}  # fmt: skip
    told = make_setup(tmp_path, f"PYTHON={sys.executable}", **alone)
    assert "pip could not reach the package index" in told
    assert "PIP_ARGS='--no-index --find-links wheels'" in told
