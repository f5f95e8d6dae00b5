"""A lab's `.cu` files become a library: cached, with errors in words, next to other processes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.marks import nightly_but
from yaie.core.errors import KernelError
from yaie.cuda import nvcc
from yaie.cuda.compiler import NoRoomError
from yaie.cuda.on_cpu import KernelFault, OnCpu, build

SAMPLES = Path(__file__).parent / "samples"
pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"
)

ADD_ONE = """
#include "yaie.cuh"
#include "more.cuh"

__global__ void add(float* x) { x[threadIdx.x] += more(); }
YAIE_API int add_one(float* x, int64_t threads, cudaStream_t stream) {
    return launch(add, 1, int(threads), 0, stream, x);
}
"""
MORE = "__device__ inline float more() { return 1.0f; }\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def lab(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("YAIE_CACHE", str(cache))
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "add.cu").write_text(ADD_ONE)
    (folder / "more.cuh").write_text(MORE)
    (folder / "unique.h").write_text(f"// {tmp_path}")
    return folder


def result(lab: Path) -> float:
    x = torch.zeros(4)
    OnCpu(lab).call("add_one", x, 4)
    return x[3].item()


def test_a_changed_header_makes_a_new_library(lab: Path) -> None:
    assert result(lab) == 1.0
    (lab / "more.cuh").write_text(MORE.replace("1.0f", "2.0f"))
    assert result(lab) == 2.0
    (lab / "more.cuh").write_text(MORE)
    assert result(lab) == 1.0


def test_what_is_cached_is_not_compiled_again(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert result(lab) == 1.0

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(build, "_run", refuse)
    assert result(lab) == 1.0
    elsewhere = tmp_path / "cache" / "cuda" / "cpu"
    elsewhere.mkdir(parents=True)
    for file in build.build(lab).files:
        shutil.copy2(file, elsewhere)
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    assert result(lab) == 1.0


@pytest.mark.nightly
def test_processes_may_compile_at_once(lab: Path, cache: Path) -> None:
    program = (
        "import sys, torch; from pathlib import Path; from yaie.cuda.on_cpu import OnCpu\n"
        "x = torch.zeros(4); OnCpu(Path(sys.argv[1])).call('add_one', x, 4); print(x.tolist())"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(lab)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [child.communicate()[0].strip() for child in children] == ["[1.0, 1.0, 1.0, 1.0]"] * 2
    assert [path.name for path in cache.rglob("tmp*")] == []


@pytest.mark.nightly
def test_runs_within_the_memory_that_a_grader_leaves(lab: Path) -> None:
    program = (
        "import resource, sys, torch; from pathlib import Path\n"
        "from yaie.cuda.on_cpu import OnCpu\n"
        "mapped = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**29,) * 2)\n"
        "x = torch.zeros(1024); OnCpu(Path(sys.argv[1])).call('add_one', x, 1024); print(x.sum())"
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    ran = subprocess.run([sys.executable, "-c", program, str(lab)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "tensor(1024.)"


def test_compile_errors_name_file_line_and_column(lab: Path) -> None:
    (lab / "add.cu").write_text(ADD_ONE.replace("more()", "les()"))
    with pytest.raises(KernelError) as caught:
        result(lab)
    assert caught.value.message.startswith("lab does not compile: add.cu:5:51: ")
    assert "les" in caught.value.message


def test_functions_that_nobody_defines_are_named(lab: Path) -> None:
    (lab / "more.cuh").write_text("__device__ float more();\n")
    with pytest.raises(KernelError, match=r"lab does not compile: nothing defines more\(\)"):
        result(lab)


def test_chevrons_are_refused_with_the_line(lab: Path) -> None:
    text = ADD_ONE.replace(
        "return launch(add, 1, int(threads), 0, stream, x);", "add<<<1, 4>>>(x); return 0;"
    )
    (lab / "add.cu").write_text(text)
    with pytest.raises(KernelError, match=r"add\.cu:7: start a kernel with launch"):
        result(lab)


def test_too_much_static_shared_memory_is_refused(lab: Path) -> None:
    (lab / "more.cuh").write_text(
        "__device__ inline float more() { __shared__ float s[13000]; s[0] = 1.0f; return s[0]; }\n"
    )
    with pytest.raises(KernelError, match=r"more declares 52000 bytes of __shared__ arrays"):
        result(lab)


def test_as_much_static_shared_memory_as_a_gpu_has_is_48_kib(lab: Path) -> None:
    text = (
        "__device__ inline float more() { __shared__ float s[N]; return s[threadIdx.x] = 1.0f; }\n"
    )
    (lab / "more.cuh").write_text(text.replace("N", str(48 * 256)))
    result(lab)
    (lab / "more.cuh").write_text(text.replace("N", str(48 * 256 + 1)))
    with pytest.raises(KernelError, match=r"more declares 49156 bytes of __shared__ arrays"):
        result(lab)


def test_a_folder_without_kernels(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"has no \.cu file"):
        OnCpu(tmp_path).call("anything", torch.zeros(1))


def test_without_a_compiler_it_says_what_to_install(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_host_compiler", lambda: None)
    with pytest.raises(KernelError, match=r"install g\+\+"):
        result(lab)


def test_extern_shared_arrays_keep_their_lines(lab: Path) -> None:
    (lab / "add.cu").write_text(
        '#include "yaie.cuh"\n'
        "__global__ void k(float* x) {\n"
        "    extern __shared__ __align__(16)\n"
        "        unsigned char bytes[];\n"
        "    auto* numbers = reinterpret_cast<float*>(bytes);\n"
        "    numbers[threadIdx.x] = 1.0f;\n"
        "    x[threadIdx.x] = numbers[threadIdx.x];\n"
        "}\n"
        "YAIE_API int add_one(float* x, int64_t bytes, cudaStream_t s) {\n"
        "    return launch(k, 1, 4, size_t(bytes), s, x);\n"
        "}\n"
    )
    x = torch.zeros(4)
    OnCpu(lab).call("add_one", x, 16)
    assert x.tolist() == [1.0] * 4
    with pytest.raises(KernelFault) as caught:
        OnCpu(lab).call("add_one", x, 12)
    assert caught.value.where == "add.cu:6"
    assert (
        "byte 12 of shared bytes, of which the launch has asked for 12 bytes"
        in caught.value.message
    )


@pytest.mark.nightly
def test_shared_arrays_of_file_scope_work_too(lab: Path) -> None:
    (lab / "add.cu").write_text(
        '#include "yaie.cuh"\n'
        "extern __shared__ float scratch[];\n"
        "__global__ void k(float* x) {\n"
        "    scratch[threadIdx.x] = 3.0f;\n"
        "    x[threadIdx.x] = scratch[threadIdx.x];\n"
        "}\n"
        "YAIE_API int add_one(float* x, int64_t n, cudaStream_t s) {\n"
        "    return launch(k, 1, int(n), 16, s, x);\n"
        "}\n"
    )
    assert result(lab) == 3.0


@pytest.mark.skipif(nvcc.find_nvcc() is None, reason="no nvcc")
@pytest.mark.slow
@pytest.mark.parametrize(
    "sample", nightly_but(["races.cu"], sorted(path.name for path in SAMPLES.glob("*.cu")))
)
def test_nvcc_compiles_the_samples_as_well(sample: str) -> None:
    found = nvcc.find_nvcc()
    assert found is not None
    include = Path(nvcc.__file__).parent / "include"
    command = [str(found.path), "-std=c++17", "-arch=sm_80", "-I", str(include), "-c"]
    ran = subprocess.run(
        [*command, str(SAMPLES / sample), "-o", os.devnull], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_a_comment_may_hold_any_bytes(lab: Path) -> None:
    (lab / "more.cuh").write_bytes(b"// caf\xe9\n" + MORE.encode())
    assert result(lab) == 1.0


def test_what_a_compiler_says_may_hold_any_bytes_and_may_be_of_the_disk(tmp_path: Path) -> None:
    for said, kind, told in (
        ("a.cu:2:1: error: stray caf\\351", KernelError, "a.cu:2:1: stray caf\ufffd"),
        ("a.cu:2:1: error: No space left on device", NoRoomError, "could not write: No space"),
    ):
        with pytest.raises(kind, match=re.escape(told)):
            build._run("lab", tmp_path, ["sh", "-c", f"printf '{said}\\n' >&2; exit 1"])


def test_a_cache_that_cannot_be_written_is_named(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "file"))
    with pytest.raises(KernelError, match=r"cannot write .*file/cuda/cpu: .*Set YAIE_CACHE"):
        result(lab)
