"""What `make setup` runs: makes the environment and fills it, and explains what stands in the way.

    python3 -I yaie/cli/set_up.py .venv [options for pip]

It runs before anything is installed, so it imports the standard library alone.
"""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ("--constraint", "constraints.txt", "--editable", ".[dev]")
LITTLE_SPACE = 2**30

NO_SPACE = """The disk is full. The environment takes 3 GB with a PyTorch for the CPU, and 6 GB with
CUDA's libraries; while it is made, the temporary folder (TMPDIR) needs some as well.
Free some space, or put it on another disk, in this call of make and in all later ones:
  make setup VENV=/folder/venv"""
NOT_WRITABLE = """{venv} cannot be written.
Copy the repository to a folder of your own, or put the environment elsewhere, in this call
of make and in all later ones:
  make setup VENV=/folder/venv"""
NO_NETWORK = """pip could not reach the package index, or the index has none of the packages.
Connect this machine and run `make setup` again: pip keeps what it has.
Behind a proxy, set HTTPS_PROXY. With an index of your own:
  make setup PIP_ARGS='--index-url https://address/simple'
Without any network, fetch the packages on another machine with this system and this version of
Python, in a copy of this repository, and bring the folder `wheels` here:
  python3 -m pip download --dest wheels --constraint constraints.txt '.[dev]' hatchling editables
  make setup PIP_ARGS='--no-index --find-links wheels'"""
NO_COMPILER = """A package has no wheel for Python {python} on {system}; pip tried to compile it,
and found no compiler that can.
{supported}
Otherwise install a compiler (on Debian or Ubuntu: apt install build-essential)."""
DO_NOT_FIT = """The versions in constraints.txt cannot all be had for Python {python} on {system}.
{supported}
With an interpreter of another version:
  make setup PYTHON=/path/to/python3.12
If PIP_ARGS names an index, that index must have them all."""
SUPPORTED = """There are wheels for Python 3.10 to 3.14 on Linux with glibc 2.31 or later (x86-64 and
aarch64), and on macOS 14 or later (Apple silicon)."""
OTHERWISE = (
    "The set-up failed: what pip says above should tell why. `make clean setup` begins anew."
)

# In this order: without a network, or on a full disk, packages are not found either.
FAULTS = {
    NO_SPACE: r"No space left on device|\[Errno (28|122)\]",
    NOT_WRITABLE: r"\[Errno (1|13|30)\]|Read-only file system|Permission denied",
    NO_NETWORK: r"Failed to establish a new connection|NewConnectionError|NameResolutionError"
    r"|getaddrinfo|Temporary failure in name resolution|Network is unreachable|ProxyError|SSLError"
    r"|(Connect|Read)Timeout|Connection (refused|reset|broken)|Remote end closed connection"
    r"|hatchling[>=.\d]+ \(from versions: none\)",
    NO_COMPILER: r"command '[^']*(gcc|g\+\+|cc|c\+\+|clang)[^']*' failed|unable to execute '"
    r"|Unknown compiler|Microsoft Visual C\+\+|No CMAKE_C(XX)?_COMPILER|(requires|find) (Rust|cargo)"
    r"|linker `cc`",
    DO_NOT_FIT: r"ResolutionImpossible|No matching distribution found|requires a different Python",
}
"""What was in the way, by what pip or venv then says."""


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0, that of what failed, or 130 after Ctrl-C."""
    venv, *options = arguments
    python = str(Path(venv) / "bin" / "python")
    steps = (
        [sys.executable, "-m", "venv", venv],
        [python, "-m", "pip", "install", *options, *INSTALL],
    )
    for command in steps:
        print(*command, flush=True)
        try:
            status, said = run(command)
        except KeyboardInterrupt:
            return 130
        if status:
            print("", explain(said, venv, free_space(venv)), sep="\n", file=sys.stderr)
            return status
    return 0


def run(command: Sequence[str]) -> tuple[int, str]:
    """The exit status, and what it wrote on stderr, which is passed on as it comes.

    Its stdout stays a terminal's, with pip's bars of progress.
    """
    lines = []
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as error:
        return 1, str(error)
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def explain(said: str, venv: str, free: int) -> str:
    """What was in the way and what to do about it, of what pip or venv said.

    free: the bytes that are left where the environment is.
    """
    found = next((text for text, pattern in FAULTS.items() if re.search(pattern, said)), OTHERWISE)
    if free < LITTLE_SPACE and found == OTHERWISE:
        found = NO_SPACE  # pip could not even say so
    system = f"{platform.system()} {platform.machine()}"
    return found.format(
        venv=venv, python=platform.python_version(), system=system, supported=SUPPORTED
    )


def free_space(venv: str) -> int:
    """In bytes, on the disk of the nearest folder above that is there."""
    folder = (ROOT / venv).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
