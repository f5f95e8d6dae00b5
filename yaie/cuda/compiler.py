"""From a folder of `.cu` files to a library, by nvcc alone.

Not PyTorch's extension builder, because that compiles against PyTorch's headers: minutes instead of
seconds, another library for each version of PyTorch and Python, and nothing that a CPU could run. Here
a library knows CUDA's runtime only (linked statically) and is called through ctypes; a file that is
compiled by g++ for the CPU is called through the same binding.

A library is kept under a name that says what it was made from:

    cuda_ops-3f9a0c51d2e4-nvcc13.0-sm80-sm90.so
    lab      sources,     compiler architectures whose machine code is in it
             headers, flags
"""

import hashlib
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from yaie.core.errors import KernelError
from yaie.cuda.bounded import run_bounded
from yaie.cuda.nvcc import INSTALL, Nvcc, find_host_compiler, find_nvcc
from yaie.system.files import NO_PLACE, cannot_write, user_cache

logger = logging.getLogger(__name__)

INCLUDE = Path(__file__).parent / "include"
# No --use_fast_math: it would change every division, square root and exponential behind the learner's
# back. Where speed is worth the digits, a kernel says __expf or rsqrtf itself.
FLAGS = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-lineinfo")
SOURCES = (".cu", ".cuh", ".h")
TIMEOUT = 900
MOST_ERRORS = 4
_NO_ROOM = re.compile(r"No space left on device|Read-only file system|Disk quota exceeded")
_STUB = re.compile(r'NOT_IMPLEMENTED\(\s*"(?P<message>[^"]+)"')
_ERROR = re.compile(r"^(?P<file>[^\s(:]+)[(:](?P<line>\d+)\)?:.*?error.*?: (?P<what>.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Built:
    """A library that lies in the cache. architectures: ("80", "90")."""

    path: Path
    nvcc: str
    architectures: tuple[str, ...]

    def runs_on(self, architecture: str) -> bool:
        """Whether it has machine code for a GPU: of its generation, and not younger than it."""
        mine = int(architecture)
        return any(
            int(name) // 10 == mine // 10 and int(name) <= mine
            for name in (name.rstrip("a") for name in self.architectures)
        )


def cache_folder() -> Path:
    """Where libraries are kept."""
    return user_cache("cuda")


def sources(folder: Path) -> list[Path]:
    """The `.cu` files of a lab, by name. Raises KernelError if there are none."""
    files = sorted(folder.glob("*.cu"))
    if not files:
        raise KernelError(f"{folder.name} has no .cu file; `make stubs` writes the labs")
    return files


def open_stubs(folder: Path) -> list[str]:
    """The messages of what a lab's `.cu` files leave unwritten."""
    texts = [file.read_text("utf-8", "replace") for file in sorted(folder.glob("*.cu*"))]
    return [stub["message"] for text in texts for stub in _STUB.finditer(text)]


def digest(folder: Path) -> str:
    """Twelve digits that change with any source, header or flag."""
    total = hashlib.sha256(" ".join(FLAGS).encode())
    for place in (folder, INCLUDE):
        for file in sorted(place.iterdir()):
            if file.suffix in SOURCES:
                content = file.read_bytes()
                total.update(b"%s %d " % (os.fsencode(file.name), len(content)) + content)
    return total.hexdigest()[:12]


def find_built(folder: Path, nvcc: Nvcc | None = None) -> list[Built]:
    """Libraries of exactly these sources, by any compiler, or by `nvcc` alone if it is given."""
    found = []
    for path in sorted(cache_folder().glob(f"{folder.name}-{digest(folder)}-nvcc*.so")):
        version, *names = path.stem.split("-nvcc")[1].split("-sm")
        if nvcc is None or nvcc.version == version:
            found.append(Built(path, version, tuple(names)))
    return found


def library_for(folder: Path, architecture: str) -> Path:
    """A library of a lab for one GPU: found, or compiled now. Raises KernelError."""
    nvcc = find_nvcc()
    for built in find_built(folder, nvcc):
        if built.runs_on(architecture):
            return built.path
    if nvcc is None:
        raise KernelError(_no_compiler(folder, architecture))
    logger.warning(
        "compiling %s for sm_%s, which may take a minute (`make build-kernels` does it ahead)",
        folder.name,
        architecture,
    )
    return build(folder, (architecture,), nvcc).path


def build(folder: Path, architectures: Sequence[str], nvcc: Nvcc | None = None) -> Built:
    """Compile a lab's `.cu` files into the cache, unless they are there. Needs no GPU.

    Raises KernelError if there is no compiler, or with the first errors, file and line.
    """
    nvcc = nvcc or find_nvcc()
    files = sources(folder)
    if nvcc is None:
        raise KernelError(f"the CUDA kernels of {folder.name} need nvcc to compile: {INSTALL}")
    names = tuple(architectures)
    for built in find_built(folder, nvcc):
        if built.architectures == names:
            return built
    suffix = "".join(f"-sm{name}" for name in names)
    path = cache_folder() / f"{folder.name}-{digest(folder)}-nvcc{nvcc.version}{suffix}.so"
    # Written beside its place and then moved there: another process never sees half a library.
    with draft_in(path.parent) as draft:
        target = draft / path.name
        _run(nvcc, folder, [*_targets(names), *map(str, files), "-o", str(target)])
        target.replace(path)
    return Built(path, nvcc.version, names)


@contextmanager
def draft_in(cache: Path) -> Iterator[Path]:
    """A folder in the cache, gone afterwards. Raises NoRoomError if nothing can be written there."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as draft:
            yield Path(draft)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        raise NoRoomError(
            f"{cannot_write(cache, error)}. Set YAIE_CACHE to a folder that can be written."
        ) from None


def refuse_full_disk(output: str) -> None:
    """Raise NoRoomError if a compiler's messages say that it could not write."""
    if found := _NO_ROOM.search(output):
        raise NoRoomError(
            f"the compiler could not write: {found[0]}. Free some space in {tempfile.gettempdir()} and "
            f"in {cache_folder()}, or set TMPDIR and YAIE_CACHE."
        )


class NoRoomError(KernelError):
    """Nothing could be written while kernels were compiled; their source is not at fault."""


def _targets(architectures: Sequence[str]) -> list[str]:
    return [f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures]


def _run(nvcc: Nvcc, folder: Path, arguments: list[str]) -> None:
    command = [str(nvcc.path), *FLAGS, "--threads=0", *nvcc.flags, "-I", str(INCLUDE), *arguments]
    try:
        ran = run_bounded(command, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise KernelError(f"nvcc did not finish {folder.name} in {TIMEOUT} s") from None
    except OSError as error:
        raise KernelError(f"{nvcc.path} cannot be run: {error.strerror}") from None
    if ran.returncode != 0:
        refuse_full_disk(ran.stderr + ran.stdout)
        raise KernelError(_explain(folder, ran.stderr + ran.stdout))


def _explain(folder: Path, output: str) -> str:
    """The first errors of nvcc's output, with the file's name alone."""
    errors = [
        f"{Path(match['file']).name}, line {match['line']}: {match['what'].strip()}"
        for match in _ERROR.finditer(output)
    ]
    if errors:
        more = len(errors) - MOST_ERRORS
        shown = "; ".join(errors[:MOST_ERRORS]) + (f"; and {more} more" if more > 0 else "")
        return f"{folder.name} does not compile: {shown}"
    if find_host_compiler() is None:
        return f"nvcc needs a C++ compiler beside it to compile {folder.name}: install g++"
    lines = [line for line in output.splitlines() if line.strip()]
    return f"{folder.name} does not compile: {' '.join(lines[-3:]) or 'nvcc gave no reason'}"


def _no_compiler(folder: Path, architecture: str) -> str:
    others = sorted({name for built in find_built(folder) for name in built.architectures})
    has = f"; what is built is for sm_{', sm_'.join(others)}" if others else ""
    return (
        f"no library of {folder.name} for this GPU (sm_{architecture}) is built{has}, and there is no "
        f"nvcc to build it: {INSTALL}, or run with backend triton or torch"
    )
