"""What grading a lab takes of this machine, and what it cannot find out here.

A Triton lab is graded in Triton's interpreter, a CUDA lab on the CPU runtime of `yaie.cuda.on_cpu`.
Where one of these is missing, the verdict of every task is "not verified here". Speed and tensor cores
are verified nowhere but on a GPU, and a report says so.
"""

import os
import shutil
import sys
from importlib.util import find_spec

from yaie.curriculum.manifest import Lab

TRITON, CUDA, GPU = "triton-interpreter", "cuda-on-cpu", "gpu"
COMPILERS = ("g++", "clang++", "c++")
INTERPRETED = {
    # Read by `triton.jit` when a kernel is defined, so set before anything is imported.
    "TRITON_INTERPRET": "1",
    # An error inside a kernel stays what it is, instead of becoming the text of another one.
    "TRITON_FRONT_END_DEBUGGING": "1",
}


def environment(lab: Lab) -> dict[str, str]:
    """What the process that grades a lab must find in its environment."""
    return INTERPRETED if TRITON in lab.verify else {}


def what_is_missing(lab: Lab) -> str:
    """Why a lab cannot be graded here and what to do about it; "" if it can."""
    if TRITON in lab.verify and find_spec("triton") is None:
        if sys.platform == "linux":
            return "Triton is not installed: `make setup` installs it, or pip install triton."
        return (
            "Triton has no build for this system. On Linux, in a container or under WSL the same "
            "files are graded."
        )
    if CUDA in lab.verify and not _compiler():
        return (
            "There is no C++ compiler to run CUDA kernels on the CPU: install g++ or clang++, or name "
            "one in the variable CXX."
        )
    return ""


def not_verified_here(lab: Lab) -> str:
    """What full marks leave open, in a few words; "" if nothing."""
    if GPU not in lab.verify:
        return ""
    return "speed and tensor cores; on a machine with a GPU: yaie bench kernels"


def why_too_long(used: float, computed: float, is_starved: bool) -> str:
    """What may be the matter where something was still running after `used` seconds of a FairClock, of
    which it took `computed` on a processor."""
    if computed >= used / 2:
        return "A loop that never ends, or work that grows much faster than its input."
    if is_starved:
        return (
            f"It got the processor for {computed:.1f} of {used:.0f} seconds: other programs keep the "
            "machine busy. Grade again when less runs."
        )
    return (
        f"It computed for {computed:.1f} of {used:.0f} seconds, and waited for the rest: for something "
        "that never comes, or it sleeps."
    )


def _compiler() -> bool:
    named = os.environ.get("CXX", "").split()
    return any(shutil.which(name) for name in [*named[:1], *COMPILERS])
