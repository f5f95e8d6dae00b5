"""Asks the package index whether `constraints.txt` fits together on every Python that YAIE runs on.

    .venv/bin/python -m tests.setup.resolve               # all versions, on the platforms below
    .venv/bin/python -m tests.setup.resolve --show 3.10   # what Python 3.10 gets on Linux

Nothing is installed, and no interpreter but this one is needed: `uv`, in an environment of its own,
reads what the index says of each package. For YAIE it takes wheels alone: what fits needs no compiler.
A version such as 3.11 is read as 3.11.0, the strictest.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.judges.clients.install import PINS, RESOLVED, ROOT, uv

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LINUX = "x86_64-manylinux_2_31"
# The wheels of llguidance want glibc 2.31 (Debian 11, Ubuntu 20.04), those of PyTorch macOS 14.
ELSEWHERE = ("aarch64-manylinux_2_31", "aarch64-apple-darwin")
MACOS = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
WANTED: list[tuple[str, ...]] = [(python, LINUX) for python in PYTHONS] + [
    (python, platform) for platform in ELSEWHERE for python in (PYTHONS[0], PYTHONS[-1])
]
SET_UP = (
    "--only-binary", ":all:", "--constraint", "constraints.txt",
    "--extra", "dev", "--extra", "cluster", "pyproject.toml",
)  # fmt: skip
# Nightly has pip resolve these lists, of 3.11 and later.
WANTED += [(PYTHONS[1], LINUX, str(PINS / f"{client}.txt")) for client in RESOLVED]
AT_ONCE = 4


class Unresolved(Exception):
    """What `uv` says of requirements that cannot all be met."""


def resolve(program: Path, python: str, platform: str, *asked: str) -> list[str]:
    """The versions ("numpy==2.4.6") that are installed there. Raises Unresolved.

    asked: what is asked for, as options of `uv pip compile`; if nothing is, what `make setup` and the
    extra `cluster` install.
    """
    command = [
        str(program), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config",
        "--python-version", python, "--python-platform", platform,
        *(asked or SET_UP),
    ]  # fmt: skip
    environment = {**os.environ, **MACOS}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise Unresolved(ran.stderr.strip())
    return ran.stdout.split("\n")[:-1]


def fault(program: Path, python: str, platform: str, *asked: str) -> str:
    """Why that does not resolve; empty if it does. Prints which of both it was."""
    named = f"Python {python} on {platform}" + "".join(f", {Path(name).stem}" for name in asked)
    try:
        found = resolve(program, python, platform, *asked)
    except Unresolved as error:
        print(f"{named}: does not fit together", flush=True)
        return f"{named}:\n{error}"
    print(f"{named}: {len(found)} packages", flush=True)
    return ""


def main(arguments: list[str]) -> int:
    """The exit status: 0, or 1 if something does not fit together."""
    program = uv()
    if arguments[:1] == ["--show"]:
        print(*resolve(program, arguments[1], LINUX), sep="\n")
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(fault, program, *each) for each in WANTED]
        faults = [found for one in asked if (found := one.result())]
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        print("Give each pin of constraints.txt that is named above a marker, and what the others get a "
              "line of its own.", file=sys.stderr)  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
