"""A home folder for one student's submission while it is graded.

It finds no key in the environment, no file in the home folder, and no compiled kernel in the cache that
another submission could have put there, unless it looks for them: it runs as the same user. What it
compiles itself is kept for its next worker.
"""

import os
import shutil
import site
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from grader.machine import CUDA
from grader.submission import Submission
from yaie.core.errors import KernelError

KEPT_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "TZ", "CC", "CXX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV",
)  # fmt: skip
"""And LC_*. Others may hold a password or a key."""


@contextmanager
def room_for(submission: Submission) -> Iterator[Path | None]:
    """A folder that is gone afterwards; None for the learner's own part, which needs none.

    Raises OSError.
    """
    if submission.kept is None:
        yield None
        return
    room = Path(tempfile.mkdtemp(prefix="yaie-room-")).resolve()
    try:
        (room / "home").mkdir()
        cache = room / "cache" / "cuda" / "cpu"
        cache.mkdir(parents=True)
        for name, content in compiled_before(CUDA in submission.lab.verify).items():
            (cache / name).write_bytes(content)
            (cache / name).chmod(0o755)
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def environment_in(room: Path) -> dict[str, str]:
    """What a worker gets to see of ours, with the room as its home."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith("LC_")
    }
    return kept | {
        "HOME": str(room / "home"),
        "YAIE_CACHE": str(room / "cache"),
        # Packages that were installed into the real home are still found.
        "PYTHONUSERBASE": site.getuserbase(),
    }


@cache
def compiled_before(is_cuda: bool) -> dict[str, bytes]:
    """The runtime of CUDA on the CPU, by its file's name: compiled, and read, before any submission
    runs. Each would compile it anew otherwise, on its own time."""
    if not is_cuda:
        return {}
    from yaie.cuda.on_cpu.build import runtime

    try:
        library = runtime()
    except KernelError:  # then nothing is graded that needs it
        return {}
    return {library.name: library.read_bytes()}
