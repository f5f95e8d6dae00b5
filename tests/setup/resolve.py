"""Asks the package index whether `constraints.txt` fits together on every Python that YAIE runs on.

    .venv/bin/python -m tests.setup.resolve               # all versions, on the platforms below
    .venv/bin/python -m tests.setup.resolve --show 3.10   # what Python 3.10 gets on Linux

Nothing is installed, and no interpreter but this one is needed: `uv`, in an environment of its own,
reads what the index says of each package. It takes wheels alone, so that what fits needs no compiler.
A version such as 3.11 is read as 3.11.0, the strictest.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.judges.clients.install import ROOT, home, make_environment

UV_PINS = Path(__file__).parent / "uv.txt"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LINUX = "x86_64-manylinux_2_31"
# The wheels of llguidance want glibc 2.31 (Debian 11, Ubuntu 20.04), those of PyTorch macOS 14.
ELSEWHERE = ("aarch64-manylinux_2_31", "aarch64-apple-darwin")
MACOS = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
WANTED = [(python, LINUX) for python in PYTHONS] + [
    (python, platform) for platform in ELSEWHERE for python in (PYTHONS[0], PYTHONS[-1])
]
AT_ONCE = 4


class Unresolved(Exception):
    """What `uv` says of requirements that cannot all be met."""


def uv() -> Path:
    """The program, installed first if it is not there."""
    folder = home() / "uv"
    make_environment(folder, UV_PINS)
    return folder / "bin" / "uv"


def resolve(program: Path, python: str, platform: str, constraints: Path) -> list[str]:
    """The versions ("numpy==2.4.6") that `make setup` installs there. Raises Unresolved."""
    command = [
        str(program), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config",
        "--only-binary", ":all:", "--python-version", python, "--python-platform", platform,
        "--constraint", str(constraints), "--extra", "dev", "pyproject.toml",
    ]  # fmt: skip
    environment = {**os.environ, **MACOS}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise Unresolved(ran.stderr.strip())
    return ran.stdout.split("\n")[:-1]


def fault(program: Path, python: str, platform: str, constraints: Path) -> str:
    """Why that does not resolve; empty if it does. Prints which of both it was."""
    try:
        found = resolve(program, python, platform, constraints)
    except Unresolved as error:
        print(f"Python {python} on {platform}: does not fit together", flush=True)
        return f"Python {python} on {platform}:\n{error}"
    print(f"Python {python} on {platform}: {len(found)} packages", flush=True)
    return ""


def main(arguments: list[str]) -> int:
    """The exit status: 0, or 1 if something does not fit together."""
    constraints, program = ROOT / "constraints.txt", uv()
    if arguments[:1] == ["--show"]:
        print(*resolve(program, arguments[1], LINUX, constraints), sep="\n")
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(fault, program, *each, constraints) for each in WANTED]
        faults = [found for one in asked if (found := one.result())]
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        print("Give each pin of constraints.txt that is named above a marker, and what the others get a "
              "line of its own.", file=sys.stderr)  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
