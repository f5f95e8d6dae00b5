"""Sets YAIE up on Python 3.10 and on the newest other Python that can be had, and tries it there.

    .venv/bin/python -m tests.setup.real            # all but PyTorch: a minute or two; CI does it
    .venv/bin/python -m tests.setup.real --whole    # `make setup` itself: gigabytes; nightly

On Linux PyTorch's wheels bring CUDA's libraries along, 5 GB a Python, for which CI has no time. An
interpreter is looked for on PATH and in pyenv's folder; otherwise `uv` tries to fetch one.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from tests.judges.clients.install import ROOT, home, uv
from tests.setup.resolve import LINUX, PYTHONS, resolve

TORCH = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
RUNNING = ".".join(platform.python_version_tuple()[:2])
# Of what needs no PyTorch: the curriculum, the graders' reports, hints and stubs.
ALONE = (
    "tests/core/test_config.py", "tests/core/test_params.py", "tests/curriculum",
    "tests/setup/test_pins.py", "tests/grader/test_report.py", "tests/grader/test_stubs.py",
    "tests/grader/test_hints.py", "tests/grader/test_reset.py",
)  # fmt: skip
# And of what does: models, a generation from the command line.
WITH_TORCH = ("tests/core", "tests/models/test_tokenizer.py", "tests/cli/test_generate.py")
FETCH_SECONDS = 300
Command = list[str]


class Failed(Exception):
    """What a step of a set-up wrote before it failed."""


def candidates(python: str) -> Iterator[Path]:
    """Where an interpreter of a version ("3.10") may be."""
    if found := which(f"python{python}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{python}.*/bin/python"), reverse=True)
    yield from sorted(home().glob(f"pythons/cpython-{python}.*/bin/python3"), reverse=True)


def runs(path: Path, python: str) -> bool:
    """Whether that is one. pyenv has stand-ins on PATH, for versions that are not chosen."""
    command = [str(path), "-c", "import sys, venv, ensurepip; print(sys.version)"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return ran.returncode == 0 and ran.stdout.startswith(f"{python}.")


def find(python: str) -> Path | None:
    """An interpreter of that version; one that `uv` fetches if there is none."""
    if found := next((path for path in candidates(python) if runs(path, python)), None):
        return found
    command = [str(uv()), "python", "install", "--quiet", "--no-bin", python]
    environment = {"UV_PYTHON_INSTALL_DIR": str(home() / "pythons"), "UV_HTTP_RETRIES": "0"}
    try:
        subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None
    return next((path for path in candidates(python) if runs(path, python)), None)


def chosen() -> dict[str, Path]:
    """3.10 and the newest, by version, as far as they are to be had; says which are not."""
    found: dict[str, Path] = {}
    for python in (PYTHONS[0], *reversed(PYTHONS[1:])):
        if python == RUNNING:
            print(f"Python {python}: this one", flush=True)
        elif path := find(python):
            found[python] = path
        else:
            print(f"Python {python}: none is here, and none could be fetched", flush=True)
            continue
        if python != PYTHONS[0]:
            break
    return found


def do(command: Command, **environment: str) -> str:
    """Its output. Raises Failed with it."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "CI")}
    ran = subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if ran.returncode:
        raise Failed(f"{' '.join(command)}\n{ran.stdout[-4000:]}")
    return ran.stdout


def tested(python: Path, *tests: str) -> str:
    """pytest's closing line. Raises Failed."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m",
               "not nightly and not slow and not gpu", *tests]  # fmt: skip
    return do(command).rstrip().rpartition("\n")[2]


def light(python: str, interpreter: Path, folder: Path) -> str:
    """The pins without PyTorch, by `uv`, and tests that need none; what came of it. Raises Failed."""
    pins = resolve(uv(), python, LINUX)
    without = [pin for pin in pins if TORCH.match(pin) is None]
    listed = folder / "pins.txt"
    listed.write_text("\n".join(without))
    there = folder / "venv" / "bin" / "python"
    install = [str(uv()), "pip", "install", "--quiet", "--python", str(there), "--no-deps"]
    do([str(uv()), "venv", "--quiet", "--python", str(interpreter), str(folder / "venv")])
    do([*install, "--requirement", str(listed)])
    do([*install, "--editable", "."])
    do([str(there.parent / "yaie"), "--help"])
    return f"{len(without)} packages, without PyTorch; {tested(there, *ALONE)}"


def whole(_python: str, interpreter: Path, folder: Path) -> str:
    """`make setup`, a generation, and tests that need PyTorch; what came of it. Raises Failed."""
    venv = folder / "venv"
    do(["make", "setup", f"PYTHON={interpreter}", f"VENV={venv}"])
    do([str(venv / "bin" / "yaie"), "generate", "What is a block table?", "--max-tokens", "4"])
    return tested(venv / "bin" / "python", *ALONE, *WITH_TORCH)


def main(arguments: list[str]) -> int:
    """The exit status: 0, or 1 if a set-up or a test failed."""
    way = whole if "--whole" in arguments else light
    status = 0
    for python, interpreter in chosen().items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"Python {python}: {way(python, interpreter, Path(folder))}", flush=True)
            except Failed as error:
                print(f"Python {python} failed: {error}", file=sys.stderr, flush=True)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
