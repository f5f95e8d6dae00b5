"""Gives each client an environment of its own: their pins contradict each other's, and ours.

    .venv/bin/python -m tests.judges.clients.install              # all that install within a minute
    .venv/bin/python -m tests.judges.clients.install langchain    # these
    .venv/bin/python -m tests.judges.clients.install judges       # lm-eval and the routers

They go to `.judges/<client>`, or into the folder that YAIE_CLIENTS names.
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
    """Make a client's environment, unless it has been made from the same pins."""
    make_environment(home() / client, PINS / f"{client}.txt", complete=client not in RESOLVED)


def make_environment(folder: Path, pins: Path, complete: bool = True) -> None:
    """One with what `pins` lists, unless it has been made from the same list.

    Raises CalledProcessError if pip fails, which says why on stderr.
    """
    made_from = folder / "pins.txt"
    if made_from.exists() and made_from.read_bytes() == pins.read_bytes():
        return
    venv.create(folder, clear=True, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
               "--no-compile", "-r", str(pins)]  # fmt: skip
    # A complete list needs no resolving, which takes longer than the installation.
    subprocess.run(command + ["--no-deps"] * complete, check=True)
    made_from.write_bytes(pins.read_bytes())


def main(wanted: list[str]) -> None:
    if sys.version_info < MINIMUM:
        print("The pins are for Python {}.{} and later: nothing is installed.".format(*MINIMUM))
        return
    for client in wanted or [client for client in clients() if client not in HEAVY]:
        print(f"{client}: {python_of(client)}", flush=True)
        install(client)


if __name__ == "__main__":
    main(sys.argv[1:])
