"""`yaie build-kernels`: compile what is in CUDA C++ ahead of its first use. Needs no GPU."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from yaie.cli.console import err, out, say, show_table
from yaie.core.errors import ConfigError, KernelError
from yaie.curriculum.manifest import load_curriculum

USUAL = ("80", "90")
"""Ampere's and Hopper's datacentre GPUs: what is built for where there is neither a GPU nor a flag."""
OWN_LEAST = 80
"""The oldest architecture that the engine's own kernels run on."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a folder. path: None if it did not compile, and then `why`."""

    lab: str
    what: str
    seconds: float = 0.0
    path: Path | None = None
    why: str = ""


def build_kernels(
    arch: Annotated[
        str | None,
        typer.Option(
            help="GPU architectures, such as 80;90 (default: TORCH_CUDA_ARCH_LIST, else this "
            "machine's GPUs, else 80;90)."
        ),
    ] = None,
    yours: Annotated[
        bool, typer.Option("--yours", help="Your own, finished or not, instead of the reference.")
    ] = False,
) -> None:
    """Compile the CUDA labs and the engine's own kernels into the cache, ahead of their first use."""
    from yaie.cuda.compiler import cache_folder
    from yaie.cuda.nvcc import INSTALL, find_nvcc

    names = architectures(arch)
    nvcc = find_nvcc()
    if nvcc is None:
        raise KernelError(f"there is no nvcc to compile CUDA kernels: {INSTALL}")
    where = ", ".join(f"sm_{name}" for name in names)
    say(f"nvcc {nvcc.version} ({nvcc.path}), for {where}, into {cache_folder()}")
    places = folders(yours)
    if not yours and min(int(name.rstrip("a")) for name in names) >= OWN_LEAST:
        from yaie.backends.gemm.streamed import FOLDER

        places.append(FOLDER)
    outcomes = build_all(places, names)
    _print(outcomes)
    if any(outcome.path is None for outcome in outcomes):
        raise typer.Exit(1)


def folders(yours: bool = False) -> list[Path]:
    """Where the CUDA labs lie. Raises ConfigError if there are none."""
    from yaie.parts import find_mine, load_part

    found = []
    for lab in load_curriculum().labs:
        if "cuda-on-cpu" in lab.verify:
            folder = find_mine(lab.key) if yours else load_part(lab.key, "none").folder
            if folder is not None:
                found.append(folder)
    if not found:
        raise ConfigError("there are no CUDA labs here; `make stubs` writes them", param="yours")
    return found


def architectures(flag: str | None) -> tuple[str, ...]:
    """Those to compile for. Raises ConfigError for what is none."""
    from yaie.cuda.nvcc import device_architecture, parse_architectures

    given = flag or os.environ.get("TORCH_CUDA_ARCH_LIST")
    if given:
        try:
            return parse_architectures(given)
        except ValueError as error:
            raise ConfigError(f"arch: {error}", param="arch") from None
    import torch

    if not torch.cuda.is_available():
        return USUAL
    return tuple(sorted({device_architecture(i) for i in range(torch.cuda.device_count())}))


def build_all(places: list[Path], names: tuple[str, ...]) -> list[Outcome]:
    """Compile folders side by side, as many as there are cores."""
    workers = max(1, min(len(places), os.cpu_count() or 1))
    with (
        err.status(Text(f"Compiling {len(places)} folders ...")),
        ThreadPoolExecutor(workers) as pool,
    ):
        return list(pool.map(lambda place: _build(place, names), places))


def _build(folder: Path, names: tuple[str, ...]) -> Outcome:
    from yaie.cuda.compiler import build, find_built, open_stubs

    known = {built.path for built in find_built(folder)}
    begin = time.perf_counter()
    try:
        path = build(folder, names).path
    except KernelError as error:
        return Outcome(folder.name, "failed", time.perf_counter() - begin, why=error.message)
    what = "there already" if path in known else "built"
    if stubs := open_stubs(folder):
        what += f", {len(stubs)} functions still to write"
    return Outcome(folder.name, what, time.perf_counter() - begin, path)


def _print(outcomes: list[Outcome]) -> None:
    table = Table("kernels", "", "seconds", "MiB", box=None, padding=(0, 2, 0, 0))
    for outcome in outcomes:
        done = outcome.path is not None
        style = "green" if done else "bold red"
        size = f"{outcome.path.stat().st_size / MIB:.1f}" if outcome.path else ""
        table.add_row(outcome.lab, Text(outcome.what, style), f"{outcome.seconds:.1f}", size)
    show_table(table)
    for outcome in outcomes:
        if outcome.why:
            out.print(Text(outcome.lab, "bold red"), outcome.why, soft_wrap=True)
