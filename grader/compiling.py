"""A CUDA part is compiled before it is graded: a file that is no C++ fails once, not in every test."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from threading import Lock

from grader.machine import CUDA
from grader.submission import Submission, place
from grader.verdict import Explanation
from yaie.core.errors import KernelError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum

WHERE = re.compile(r"(?P<file>[\w.-]+\.cuh?):(?P<line>\d+)(?::\d+)?: (?P<what>[^;]*)")
CLAIM = "The part compiles."


def compile_part(submission: Submission) -> Explanation | None:
    """Compile the part's kernels for the CPU, into the cache. Returns why that cannot be done.

    Raises NoRoomError where that is not the part's fault.
    """
    if CUDA not in submission.lab.verify:
        return None
    from yaie.cuda.compiler import NoRoomError
    from yaie.cuda.on_cpu.build import build

    try:
        build(submission.folder)
    except NoRoomError:
        raise
    except KernelError as error:
        return explain_compiler(error, submission)
    return None


def compile_others(lab: Lab) -> None:
    """Compile the kernels of the other labs, the reference's, for the CPU and into the cache."""
    _compile_references(other for other in load_curriculum().labs if other.key != lab.key)


def compiled_references() -> list[Path]:
    """What the cache has of the references of all CUDA labs, compiled if it had it not; none where
    nothing can be compiled."""
    with _one_at_a_time:
        return _compiled_references()


_one_at_a_time = Lock()


@cache
def _compiled_references() -> list[Path]:
    try:
        return _compile_references(load_curriculum().labs)
    except KernelError:  # the part's own compiling says so
        return []


def _compile_references(labs: Iterable[Lab]) -> list[Path]:
    from yaie.cuda.on_cpu.build import build

    built = [build(ROOT / "solutions" / lab.key) for lab in labs if CUDA in lab.verify]
    return [file for one in built for file in one.files]


def explain_compiler(error: KernelError, submission: Submission) -> Explanation:
    """The first complaint, with its line."""
    found = WHERE.search(error.message)
    if found is None:
        return Explanation(CLAIM, f"It does not compile: {error.message}")
    where = place(submission, str(submission.folder / found["file"]), int(found["line"]))
    return Explanation(CLAIM, f"It does not compile: {found['what'].strip()}", where=where)
