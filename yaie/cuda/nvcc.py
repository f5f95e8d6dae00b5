"""Where nvcc is, and what can be said about the machine before it runs."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INSTALL = (
    "install NVIDIA's CUDA toolkit, or `pip install nvidia-cuda-nvcc nvidia-cuda-runtime`, or set "
    "CUDA_HOME to where it lies"
)


@dataclass(frozen=True, slots=True)
class Nvcc:
    """The compiler. version: "13.0". found_by: what led to it, in words."""

    path: Path
    version: str
    found_by: str

    @property
    def flags(self) -> list[str]:
        """What a toolkit from pip needs: its libraries lie where nvcc does not look."""
        folder = self.path.parent.parent / "lib"
        return [f"-L{folder}"] if folder.is_dir() and "site-packages" in folder.parts else []


def find_nvcc() -> Nvcc | None:
    """The first of: CUDA_HOME, the PATH, the pip package `nvidia-cuda-nvcc`, /usr/local/cuda."""
    for found_by, path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            version = _version(path)
            if version is not None:
                return Nvcc(path, version, found_by)
    return None


def find_host_compiler() -> str | None:
    """The C++ compiler that nvcc compiles the host's side with, and that CUDA on the CPU needs."""
    names = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def device_architecture(index: int = 0) -> str:
    """ "90" for a GPU of compute capability 9.0."""
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    return f"{major}{minor}"


def parse_architectures(text: str) -> tuple[str, ...]:
    """("80", "90") of "80;90", "8.0 9.0+PTX" or "sm_80,sm_90", as nvcc and PyTorch write them.

    Raises ValueError for what is no architecture.
    """
    names = [name for name in re.split(r"[;,\s]+", text.strip()) if name]
    found = []
    for name in names:
        match = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)(a?)(?:\+PTX)?", name)
        if match is None:
            raise ValueError(f"{name!r} is no GPU architecture; write 80;90 or 8.0;9.0")
        found.append("".join(match.groups()))
    if not found:
        raise ValueError("no GPU architecture is named; write 80;90 or 8.0;9.0")
    return tuple(sorted(set(found), key=lambda name: (int(name.rstrip("a")), name)))


def _candidates() -> Iterator[tuple[str, Path]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield variable, Path(home) / "bin" / "nvcc"
    if on_path := shutil.which("nvcc"):
        yield "PATH", Path(on_path)
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}
    for place in sorted(place for place in places if place.endswith("site-packages")):
        # nvidia/cu13 from CUDA 13 on, nvidia/cuda_nvcc before.
        for path in sorted(Path(place).glob("nvidia/*/bin/nvcc"), reverse=True):
            yield "pip", path
    yield "/usr/local/cuda", Path("/usr/local/cuda/bin/nvcc")


@cache
def _version(path: Path) -> str | None:
    """What `nvcc --version` says; None for a program that is none."""
    try:
        ran = subprocess.run(
            [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release (\d+\.\d+)", ran.stdout)
    return match[1] if match else None
