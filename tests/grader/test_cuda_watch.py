"""Faults of CUDA kernels are failures that name line and cause; what does not compile is one failure."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from grader import machine
from grader.compiling import compile_part
from grader.recorder import explain
from grader.submission import Submission
from yaie.cuda import CudaLibrary
from yaie.curriculum.manifest import load_curriculum

LAB = dataclasses.replace(load_curriculum()["radix_tree"], verify=("cuda-on-cpu", "gpu"))
if machine.what_is_missing(LAB):
    pytest.skip("no C++ compiler", allow_module_level=True)

from grader.kit import Mismatch  # noqa: E402
from grader.kit.cuda_watch import KernelFault, orders, watching  # noqa: E402
from grader.kit.cuda_work import (  # noqa: E402
    expect_grid_fits,
    expect_whole_warps,
    expect_within_bounds,
    launches_of,
)

SOURCE = """\
#include <yaie.cuh>

__global__ void reverse(float* x, int64_t n) {
    __shared__ float tile[64];
    const int64_t i = threadIdx.x;
    if (i < n) tile[i] = x[i];
    __syncthreads();
    if (i < n) x[i] = tile[n - 1 - i];
}

YAIE_API int run_reverse(float* x, int64_t n, cudaStream_t stream) {
    return launch(reverse, dim3(1), dim3(64), 0, stream, x, n);
}
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    """A cache of its own: the runtime is compiled once for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YAIE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def part_of(folder: Path, old: str = "", new: str = "") -> Submission:
    part = folder / "radix_tree"
    part.mkdir()
    assert old in SOURCE
    (part / "reverse.cu").write_text(SOURCE.replace(old, new) if old else SOURCE)
    (part / "__init__.py").touch()
    return Submission(LAB, part.resolve(), folder.resolve())


def reverse(part: Submission, x: torch.Tensor) -> None:
    CudaLibrary(part.folder).call("run_reverse", x, x.numel())


def test_a_kernel_that_is_right_runs_in_any_order_and_is_counted(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    for _ in orders(3):
        x = torch.arange(40.0)
        with watching() as launches:
            reverse(part, x)
        assert x.tolist() == list(range(39, -1, -1))
    [launch] = launches
    assert (launch.kernel, launch.threads, launch.barriers) == ("reverse", 64, 1)
    assert launch.global_loads.count == launch.global_stores.count == 40


def test_what_a_launcher_chooses_is_judged_without_running(tmp_path: Path) -> None:
    part, x = part_of(tmp_path, "dim3(64)", "dim3(n)"), torch.arange(64.0)
    launches = launches_of(lambda: reverse(part, x))
    assert x.tolist() == list(range(64))
    for pieces in (22, 512):  # from a third of the threads to eight times as many
        expect_grid_fits(launches, pieces, "64 threads")
    for pieces, expected in ((21, "at most 63"), (513, "at least 65")):
        with pytest.raises(Mismatch) as raised:
            expect_grid_fits(launches, pieces, "64 threads")
        assert expected in raised.value.expected
    expect_whole_warps(launches, "64 threads")
    with pytest.raises(Mismatch, match="blocks of 33 threads"):
        expect_whole_warps(launches_of(lambda: reverse(part, x[:33])), "33 threads")
    expect_within_bounds(launches, {"reverse": 64, "other": 1}, "64 threads")
    with pytest.raises(Mismatch, match="__launch_bounds__ say 32"):
        expect_within_bounds(launches, {"reverse": 32}, "64 threads")


@pytest.mark.parametrize(
    ("old", "new", "kind", "line", "cause"),
    [
        ("    __syncthreads();\n", "", "race", "line", "__syncthreads()"),
        ("tile[n - 1 - i];", "x[n - 1 - i];", "race", "line 8", "__syncthreads()"),
        ("if (i < n) x[i]", "x[i]", "out_of_bounds", "line 8", "masked by a condition"),
        ("if (i < n) tile[i]", "if (i < n - 1) tile[i]", "uninitialized", "line 8", "no value"),
        (
            "    __syncthreads();",
            "    if (i < n) __syncthreads();",
            "barrier",
            "line",
            "Every thread",
        ),
    ],
)
def test_a_fault_is_explained_with_its_line_and_its_cause(
    tmp_path: Path, old: str, new: str, kind: str, line: str, cause: str
) -> None:
    part = part_of(tmp_path, old, new)
    with pytest.raises(KernelFault) as raised:
        reverse(part, torch.arange(40.0))
    assert raised.value.kind == kind
    why = explain(raised.value, "It reverses.", part, 10.0)
    assert f"radix_tree/reverse.cu, {line}" in why.where
    assert cause in why.why
    assert why.problem == raised.value.message


def test_what_does_not_compile_is_said_once_with_its_line(tmp_path: Path) -> None:
    assert compile_part(part_of(tmp_path)) is None
    shutil.rmtree(tmp_path / "radix_tree")
    broken = part_of(tmp_path, "const int64_t i", "const in64_t i")
    why = compile_part(broken)
    assert why is not None
    assert why.problem.startswith("It does not compile: 'in64_t' does not name a type")
    assert why.where == "radix_tree/reverse.cu, line 5\n    const in64_t i = threadIdx.x;"


def test_a_lab_without_kernels_needs_no_compiler(tmp_path: Path) -> None:
    part = part_of(tmp_path, "const int64_t i", "const in64_t i")
    assert compile_part(dataclasses.replace(part, lab=load_curriculum()["radix_tree"])) is None
