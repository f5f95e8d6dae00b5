"""From `source/` to a library for this processor, by the compiler that the CUDA labs use on a CPU. So
is what layers with a state run on (`yaie.backends.states`), which is a library of its own.

It is kept beside theirs, under a name that says what it was made from: the sources, the compiler, and
the instructions that this processor has.
"""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from yaie.core.errors import KernelError
from yaie.cuda.compiler import cache_folder, draft_in, refuse_full_disk
from yaie.cuda.nvcc import find_host_compiler
from yaie.system.processor import flags as processor_flags

SOURCE = Path(__file__).parent / "source"
FLAGS = (
    "-O3", "-std=c++17", "-fPIC", "-shared", "-pthread",
    "-ffp-contract=fast",  # a * b + c in one instruction
    "-Wno-psabi", "-fdiagnostics-color=never",
)  # fmt: skip
TIMEOUT = 300
INSTALL = "install g++ (`apt install g++`, `dnf install gcc-c++`) or clang++, or set CXX"


def missing() -> str:
    """Why nothing can be built here, in words; "" if it can."""
    if sys.platform not in ("linux", "darwin"):
        return f"attention in C++ is not built on {sys.platform}"
    if find_host_compiler() is None:
        return f"there is no C++ compiler: {INSTALL}"
    return ""


def build(
    extra: Sequence[str] = (),
    source: Path = SOURCE,
    headers: Path | None = None,
    what: str = "attention",
) -> Path:
    """The library, compiled unless the cache has it. extra: more flags, as for a sanitizer. source: the
    folder of its files, where they are not those of this room. headers: a folder whose headers they
    include. what: it computes, in a word.

    Raises KernelError: no compiler, or the first line of what it complains about.
    """
    if why := missing():
        raise KernelError(why)
    compiler = find_host_compiler()
    assert compiler is not None
    files = sorted(source.iterdir())
    flags = (*FLAGS, _native(), *extra)
    included = sorted(headers.glob("*.h")) if headers else []
    key = hashlib.sha256()
    texts = (file.read_text() for file in (*files, *included))
    for part in (_version(compiler), _processor(), *flags, *texts):
        key.update(part.encode() + b"\0")
    path = _folder() / f"cpu-{key.hexdigest()[:16]}.so"
    if os.path.exists(path):  # where `Path.exists` raises, it does not
        return path
    # Written beside its place and then moved there: another process never sees half a library.
    with draft_in(path.parent) as draft:
        if sys.stderr.isatty():
            print(f"Compiling {what} for this processor, once: a few seconds ...", file=sys.stderr)
        target = draft / path.name
        units = [str(file) for file in files if file.suffix == ".cpp"]
        folders = [f"-I{headers}"] if headers else []
        _run([compiler, *flags, *folders, *units, "-o", str(target)], what)
        target.replace(path)
    return path


def _folder() -> Path:
    """Raises KernelError where there is no place for it."""
    given = os.environ.get("YAIE_CACHE")
    try:
        return (Path(given) if given else cache_folder().parent) / "cpp"
    except RuntimeError:  # a user without an entry and without HOME, as in many a container
        raise KernelError("there is no home folder to keep it in: set YAIE_CACHE") from None


def _native() -> str:
    """All instructions of this processor; the option has another name for ARM."""
    return "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"


@cache
def _version(compiler: str) -> str:
    return subprocess.run(
        [compiler, "--version"], capture_output=True, encoding="utf-8", errors="replace"
    ).stdout


@cache
def _processor() -> str:
    """What tells processors with other instructions apart, where a folder is shared between machines."""
    return " ".join(sorted(processor_flags())) or platform.processor() or platform.machine()


def _run(command: list[str], what: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}  # its messages are read
    try:
        ran = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace",
            timeout=TIMEOUT, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KernelError(f"{command[0]} did not finish in {TIMEOUT} s") from None
    except OSError as error:
        raise KernelError(f"{command[0]} cannot be run: {error.strerror}") from None
    if ran.returncode:
        refuse_full_disk(ran.stderr)
        errors = [line for line in ran.stderr.splitlines() if "error" in line]
        raise KernelError(
            f"{Path(command[0]).name} does not compile {what} for this processor: "
            f"{(errors or ran.stderr.splitlines() or ['it gave no reason'])[0]}"
        )
