"""Runs the cases: check, time, tell. A case that fails is told and harms no other."""

import gc
import importlib.util
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch

from yaie.bench.kernels import drawing, flash, layer, libraries, memory, paged
from yaie.bench.kernels.case import Case, Problem, Run, error_of
from yaie.bench.kernels.ceilings import ceilings
from yaie.bench.kernels.libraries import FA3, FLASHINFER, lacking
from yaie.bench.kernels.show import show_cases
from yaie.bench.kernels.timing import measure
from yaie.bench.report import progress, save
from yaie.cli.console import show_parts
from yaie.core.errors import ConfigError
from yaie.cuda.nvcc import find_nvcc
from yaie.curriculum.blame import summarize
from yaie.parts import Parts, load_parts

FAMILIES = (layer, flash, paged, memory, drawing)
Json = dict[str, Any]


def run(operations: list[str], only: list[str], mine: str, json: str | None) -> None:
    """Measure the cases whose operation is named, or all. only: names of runs, or all.

    mine: whose parts. Raises ConfigError for a name that does not exist, or if there is no GPU.
    """
    wanted = choose(operations)
    if not torch.cuda.is_available():
        raise ConfigError(
            "kernels are measured on a GPU, and PyTorch sees none here. On a CPU their graders count "
            "loads, stores and bank conflicts instead: make grade LAB=triton_ops"
        )
    parts = load_parts(mine)
    show_parts(parts.table(), brief=True)
    begin = time.perf_counter()
    torch.manual_seed(0)
    figures: Json = {
        "command": shlex.join(["yaie", *sys.argv[1:]]),
        "versions": versions(),
        "absent": absent(),
    }
    results: dict[str, dict[str, Json]] = {}
    with progress() as bar, torch.inference_mode(False):
        figures["ceilings"] = ceilings()
        for case in bar.track(wanted, description="measuring"):
            bar.console.print(f"{case.operation} {case.size}", style="dim")
            result = measured(case, parts, only, figures["ceilings"])
            results.setdefault(case.operation, {})[case.size] = result
    figures["operations"] = results
    figures["seconds"] = round(time.perf_counter() - begin, 1)
    save(json, figures)
    show_cases(wanted, figures)


def choose(operations: list[str]) -> list[Case]:
    """The cases of these operations, or all. Raises ConfigError."""
    every = [case for family in FAMILIES for case in family.cases()]
    names = list(dict.fromkeys(case.operation for case in every))
    for name in operations:
        if name not in names:
            raise ConfigError(
                f"no operation is called {name!r}; choose from {', '.join(names)}",
                param="operation",
            )
    return [case for case in every if not operations or case.operation in operations]


def measured(case: Case, parts: Parts, only: list[str], limits: Json) -> Json:
    """The figures of a case; each run has either its own, or `failed` with the reason."""
    result: Json = {
        "label": case.label, "unit": case.unit, "work": case.work, "goal": case.goal, "runs": {},
    }  # fmt: skip
    try:
        with torch.device("cuda"):
            problem = case.build(parts)
    except Exception as error:  # noqa: BLE001, out of memory among others
        result["failed"] = summarize(error)
        return result
    for name, make in problem.runs.items():
        if only and name not in only:
            continue
        if lacking(name):
            continue
        try:
            entry = _one(case, problem, make())
            entry["share"] = entry["rate"] / limits[case.unit]["rate"]
        except Exception as error:  # noqa: BLE001, a kernel may raise anything
            entry = {"failed": summarize(error)}
        result["runs"][name] = entry
    del problem
    gc.collect()
    with suppress(RuntimeError):  # a kernel that has lost the GPU was told where it failed
        torch.cuda.empty_cache()
    return result


def _one(case: Case, problem: Problem, run: Run) -> Json:
    error = _error(problem, run)
    if not error <= problem.tolerance:
        return {"failed": f"wrong: error {error:.3g}, allowed {problem.tolerance:.3g}"}
    timing = measure(run, problem.sets, capture=problem.capture)
    return {"rate": case.rate(timing.median), "error": error, **timing.as_json()}


def _error(problem: Problem, run: Run) -> float:
    """The worst of what is checked, on a copy of the first arguments."""
    arguments = problem.sets[0]
    if problem.check is not None:
        return problem.check(run(*arguments), arguments)
    expected = list(problem.expected(*arguments))
    given = tuple(_copied(arguments)) if problem.in_place else arguments
    got = list(problem.picked(run(*given)))
    return max(error_of(one, other) for one, other in zip(got, expected, strict=True))


def _copied(arguments: Iterable[Any]) -> Iterator[Any]:
    """Clones with the same strides: a view of a wider tensor stays one."""
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            yield argument
        elif argument.is_contiguous():
            yield argument.clone()
        else:
            span = 1 + sum(
                (n - 1) * s for n, s in zip(argument.shape, argument.stride(), strict=True)
            )
            wide = torch.empty(span, dtype=argument.dtype, device=argument.device)
            yield wide.as_strided(argument.shape, argument.stride()).copy_(argument)


def absent() -> dict[str, str]:
    """The libraries that are not here, each with the reason."""
    reasons = {name: lacking(name) for name in (*FLASHINFER, FA3)}
    return {name: reason for name, reason in reasons.items() if reason}


def versions() -> Json:
    """Of what the figures depend on."""
    nvcc = find_nvcc()
    found = {"torch_cuda": torch.version.cuda, "nvcc": nvcc.version if nvcc else None}
    if importlib.util.find_spec("triton") is not None:
        found["triton"] = getattr(importlib.import_module("triton"), "__version__", "?")
    found |= libraries.versions()
    found["driver"] = _driver()
    found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def _driver() -> str | None:
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        ran = subprocess.run(
            query, capture_output=True, encoding="utf-8", errors="replace", timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.split("\n")[0].strip() or None
