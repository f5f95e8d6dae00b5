"""Gives each client an environment of its own: their pins contradict each other's, and ours.

    .venv/bin/python -m tests.judges.clients.install              # all that install within a minute
    .venv/bin/python -m tests.judges.clients.install langchain    # these
    .venv/bin/python -m tests.judges.clients.install judges       # lm-eval and the routers

They go to `.judges/<client>`, or into the folder that YAIE_CLIENTS names. `uv`, in an environment
beside them, installs those whose lists are complete: a second each, where pip takes ten.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
PINS = Path(__file__).parent / "pins"
# These take minutes and more than a gigabyte.
HEAVY = ("aiperf", "guidellm", "judges")
# Their PyTorch brings along what the platform has, so their lists are not complete.
RESOLVED = ("guidellm", "judges")
MINIMUM = (3, 11)
UV_PINS = ROOT / "tests/setup/uv.txt"
MADE_FROM = "pins.txt"


def clients() -> list[str]:
    """Every client that has a list of pins."""
    return sorted(file.stem for file in PINS.glob("*.txt"))


def home() -> Path:
    """Where the environments are."""
    return Path(os.environ.get("YAIE_CLIENTS") or ROOT / ".judges")


def python_of(client: str) -> Path:
    """The interpreter of a client's environment, which need not exist."""
    return home() / client / "bin" / "python"


def pinned(client: str) -> dict[str, str]:
    """The version of each package of a client's environment."""
    lines = (PINS / f"{client}.txt").read_text("utf-8").splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {name: version for name, _, version in pins}


def install(client: str) -> None:
    """Make a client's environment, unless it has been made from the same pins.

    Raises CalledProcessError if an installation fails, which says why on stderr.
    """
    folder, pins = home() / client, PINS / f"{client}.txt"
    if client in RESOLVED:
        by_pip(folder, pins)
    elif not is_made(folder, pins):
        program, python = str(uv()), str(python_of(client))
        make = [program, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]
        # A complete list needs no resolving.
        fill = [
            program,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            python,
            "-r",
            str(pins),
        ]
        for command in (make, fill):
            subprocess.run(command, check=True)
        remember(folder, pins)


def uv() -> Path:
    """The program, installed first if it is not there."""
    folder = home() / "uv"
    by_pip(folder, UV_PINS, complete=True)
    return folder / "bin" / "uv"


def by_pip(folder: Path, pins: Path, complete: bool = False) -> None:
    """An environment with what `pins` lists, unless it has been made from the same list."""
    if is_made(folder, pins):
        return
    venv.create(folder, clear=True, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
               "--no-compile", "-r", str(pins)]  # fmt: skip
    subprocess.run(command + ["--no-deps"] * complete, check=True)
    remember(folder, pins)


def is_made(folder: Path, pins: Path) -> bool:
    """Whether there is an environment, from the same list of pins."""
    made_from = folder / MADE_FROM
    return made_from.exists() and made_from.read_bytes() == pins.read_bytes()


def remember(folder: Path, pins: Path) -> None:
    """What an environment was made from, now that all of it is there."""
    (folder / MADE_FROM).write_bytes(pins.read_bytes())


def main(wanted: list[str]) -> None:
    if sys.version_info < MINIMUM:
        print("The pins are for Python {}.{} and later: nothing is installed.".format(*MINIMUM))
        return
    for client in wanted or [client for client in clients() if client not in HEAVY]:
        print(f"{client}: {python_of(client)}", flush=True)
        install(client)


if __name__ == "__main__":
    main(sys.argv[1:])
