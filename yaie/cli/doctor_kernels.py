"""The part of `yaie doctor` that is about kernels: Triton, compilers, and what is built."""

import importlib.util
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw. `todo` says what to do about it if it is not `ok`."""

    subject: str
    ok: bool
    seen: str
    todo: str = ""
    needed: bool = False


def kernel_findings() -> list[Finding]:
    """Each of these may be missing: the torch backend needs none of them."""
    try:
        return [_triton(), _nvcc(), _compiler(), _built()]
    except (ImportError, OSError):  # without PyTorch, which is told by itself
        return [_triton()]


def _triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        todo = "For the Triton labs: pip install 'yaie[gpu]' (Linux)."
        return Finding("Triton", False, "not installed", todo)
    from importlib.metadata import PackageNotFoundError, version

    try:
        seen = version("triton")
    except PackageNotFoundError:
        seen = "installed"
    return Finding("Triton", True, seen)


def _nvcc() -> Finding:
    from yaie.cuda.nvcc import find_nvcc

    nvcc = find_nvcc()
    if nvcc is None:
        todo = "For CUDA on a GPU: the CUDA toolkit, or pip install nvidia-cuda-nvcc."
        return Finding("nvcc", False, "not found", todo)
    return Finding("nvcc", True, f"{nvcc.version}, {nvcc.path} ({nvcc.found_by})")


def _compiler() -> Finding:
    from yaie.cuda.nvcc import find_host_compiler

    path = find_host_compiler()
    if path is None:
        fix = "xcode-select --install" if sys.platform == "darwin" else "apt install g++"
        todo = f"For attention in C++, which is faster, and the CUDA labs: {fix}."
        return Finding("C++ compiler", False, "not found", todo)
    return Finding("C++ compiler", True, path)


def _built() -> Finding:
    from yaie.cli.build_kernels import folders
    from yaie.core.errors import ConfigError
    from yaie.cuda.compiler import find_built

    try:
        places = folders()
    except ConfigError:
        return Finding("CUDA kernels", False, "no sources here")
    built = {place: find_built(place) for place in places}
    done = [libraries for libraries in built.values() if libraries]
    names = sorted({f"sm_{name}" for found in done for one in found for name in one.architectures})
    seen = f"{len(done)} of {len(places)} labs built" + (
        f" for {', '.join(names)}" if names else ""
    )
    missing = len(done) < len(places)
    todo = "They are built when first used on a GPU; before that: make build-kernels."
    return Finding("CUDA kernels", not missing, seen, todo if missing else "")
