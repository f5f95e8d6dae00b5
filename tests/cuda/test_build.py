"""Finding nvcc, compiling with it, and knowing again what was compiled."""

import ctypes
import os
import stat
import sys
from pathlib import Path

import pytest

from yaie.core.errors import KernelError
from yaie.cuda import compiler, nvcc
from yaie.cuda.compiler import NoRoomError, build, find_built, library_for, open_stubs
from yaie.cuda.nvcc import Nvcc, find_host_compiler, find_nvcc, parse_architectures

LABS = ("cuda_memory_ops", "cuda_ops", "cuda_flash_attention", "cuda_paged_attention")
SOLUTIONS = Path(__file__).resolve().parent.parent.parent / "solutions"
KERNEL = '#include "yaie.cuh"\nYAIE_API int seven(cudaStream_t) { return 7; }\n'

FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release {version}, V{version}.88'; exit; fi
echo "$@" >> {log}
{body}
while [ $# -gt 1 ]; do if [ "$1" = -o ]; then echo library > "$2"; fi; shift; done
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "cuda_ops"
    folder.mkdir()
    (folder / "norm.cu").write_text(KERNEL)
    return folder


def fake_nvcc(home: Path, body: str = "", version: str = "13.0") -> Nvcc:
    """A compiler that writes what it was asked into a log, and a library."""
    path = home / "bin" / "nvcc"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE.format(log=home / "log", body=body, version=version))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    nvcc._version.cache_clear()
    return Nvcc(path, version, "test")


def calls(home: Path) -> list[str]:
    log = home / "log"
    return log.read_text().splitlines() if log.exists() else []


def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_nvcc", lambda: None)


@pytest.mark.parametrize(
    "text", ["80;90", "8.0 9.0", "sm_90,sm_80", "9.0+PTX 8.0", " compute_80 ; 90 "]
)
def test_architectures_as_everybody_writes_them(text: str) -> None:
    assert parse_architectures(text) == ("80", "90")


def test_newest_architectures_are_understood() -> None:
    assert parse_architectures("12.0;90a;80;100") == ("80", "90a", "100", "120")


@pytest.mark.parametrize("text", ["", "hopper", "9", "90;x"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="80;90"):
        parse_architectures(text)


def test_cuda_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("home", "12.8"), ("path", "13.0")):
        fake_nvcc(tmp_path / name, version=version)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    found = find_nvcc()
    assert found is not None
    assert (found.version, found.found_by) == ("13.0", "PATH")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    found = find_nvcc()
    assert found is not None
    assert (found.version, found.found_by) == ("12.8", "CUDA_HOME")


def test_the_pip_package_is_found_and_told_where_its_libraries_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site-packages"
    fake_nvcc(place / "nvidia" / "cu13")
    (place / "nvidia" / "cu13" / "lib").mkdir()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(nvcc.shutil, "which", lambda name: None)
    monkeypatch.syspath_prepend(place)
    found = find_nvcc()
    assert found is not None
    assert found.found_by == "pip"
    assert found.flags == [f"-L{place / 'nvidia' / 'cu13' / 'lib'}"]


def test_a_library_is_built_once_for_all_architectures(lab: Path, tmp_path: Path) -> None:
    fake = fake_nvcc(tmp_path)
    first = build(lab, ("80", "90"), fake)
    again = build(lab, ("80", "90"), fake)
    assert first == again
    assert first.path.read_text() == "library\n"
    (call,) = calls(tmp_path)
    assert "arch=compute_80,code=sm_80" in call
    assert "arch=compute_90,code=sm_90" in call
    assert "norm.cu" in call
    assert list(first.path.parent.iterdir()) == [first.path]


def test_any_change_of_a_source_is_another_library(lab: Path, tmp_path: Path) -> None:
    fake = fake_nvcc(tmp_path)
    paths = [build(lab, ("90",), fake).path]
    for name, text in (("norm.cu", KERNEL + "\n"), ("pack.cuh", "// more"), ("rope.cu", "")):
        (lab / name).write_text(text)
        paths.append(build(lab, ("90",), fake).path)
    assert len(set(paths)) == 4
    (lab / "notes.md").write_text("nothing that is compiled")
    assert build(lab, ("90",), fake).path == paths[-1]


def test_a_newer_compiler_builds_again(lab: Path, tmp_path: Path) -> None:
    old = build(lab, ("90",), fake_nvcc(tmp_path / "old", version="12.8"))
    new = build(lab, ("90",), fake_nvcc(tmp_path / "new", version="13.0"))
    assert old.path != new.path
    assert {built.nvcc for built in find_built(lab)} == {"12.8", "13.0"}


@pytest.mark.parametrize(
    ("built_for", "runs", "fails"),
    [(("80",), ["80", "86", "89"], ["75", "90"]), (("80", "90"), ["90", "86"], ["100", "120"])],
)
def test_machine_code_runs_on_its_own_generation(
    built_for: tuple[str, ...], runs: list[str], fails: list[str], lab: Path, tmp_path: Path
) -> None:
    built = build(lab, built_for, fake_nvcc(tmp_path))
    assert all(built.runs_on(name) for name in runs)
    assert not any(built.runs_on(name) for name in fails)


def test_what_was_built_elsewhere_is_used_without_a_compiler(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(lab, ("80", "90"), fake_nvcc(tmp_path))
    no_nvcc(monkeypatch)
    assert library_for(lab, "90") == built.path


def test_without_a_compiler_the_message_says_what_to_install(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(lab, ("80",), fake_nvcc(tmp_path))
    no_nvcc(monkeypatch)
    with pytest.raises(
        KernelError, match=r"sm_90.*built is for sm_80.*pip install nvidia-cuda-nvcc"
    ):
        library_for(lab, "90")
    with pytest.raises(KernelError, match="CUDA_HOME"):
        build(lab, ("90",))


def test_what_does_not_compile_is_told_by_file_and_line(lab: Path, tmp_path: Path) -> None:
    body = "echo '/deep/down/norm.cu(12): error: identifier \"y\" is undefined' >&2; exit 2"
    with pytest.raises(KernelError) as error:
        build(lab, ("90",), fake_nvcc(tmp_path, body))
    assert error.value.message == (
        'cuda_ops does not compile: norm.cu, line 12: identifier "y" is undefined'
    )
    assert find_built(lab) == []


def test_a_compiler_that_gives_no_reason_is_quoted(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", sys.executable)  # is never run
    body = "echo 'nvcc fatal   : Unsupported gpu architecture' >&2; exit 1"
    with pytest.raises(KernelError, match="Unsupported gpu architecture"):
        build(lab, ("90",), fake_nvcc(tmp_path, body))


def test_a_lab_without_sources_says_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "cuda_ops").mkdir()
    with pytest.raises(KernelError, match="make stubs"):
        build(tmp_path / "cuda_ops", ("90",), fake_nvcc(tmp_path))


def test_open_stubs_are_listed(lab: Path) -> None:
    assert open_stubs(lab) == []
    (lab / "rope.cu").write_text('int f() { NOT_IMPLEMENTED("cuda_ops task 14.5: not yet"); }')
    assert open_stubs(lab) == ["cuda_ops task 14.5: not yet"]


# --- with a real compiler ---

needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None or find_host_compiler() is None,
    reason="needs nvcc and a C++ compiler, and one of them is not installed",
)


@needs_nvcc
def test_nvcc_compiles_a_library_that_python_can_call(lab: Path) -> None:
    library = ctypes.CDLL(str(build(lab, ("80", "90")).path))
    library.yaie_error_string.restype = ctypes.c_char_p
    assert library.seven(None) == 7
    assert library.yaie_error_string(700) == b"an illegal memory access was encountered"


@pytest.mark.nightly
@needs_nvcc
def test_nvcc_compiles_a_stub_of_a_kernel_and_of_a_host_function(lab: Path) -> None:
    (lab / "stubs.cu").write_text(
        '#include "yaie.cuh"\n'
        '__global__ void kernel(float* x) { NOT_IMPLEMENTED("task 14.1"); }\n'
        '__device__ float helper(float x) { NOT_IMPLEMENTED("task 14.1"); }\n'
        'YAIE_API int host(void* x, cudaStream_t) { NOT_IMPLEMENTED("task 14.2"); }\n'
    )
    assert build(lab, ("90",)).path.exists()


@needs_nvcc
def test_errors_of_nvcc_have_file_and_line(lab: Path) -> None:
    (lab / "wrong.cu").write_text(
        '#include "yaie.cuh"\n\n__global__ void f(float* x) { x[0] = y; }\n'
    )
    with pytest.raises(KernelError, match=r'wrong.cu, line 3: identifier "y" is undefined'):
        build(lab, ("90",))


@pytest.mark.nightly
@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", LABS)
def test_the_references_compile_for_ampere_and_hopper(name: str) -> None:
    """Into the user's own cache: minutes the first time, nothing after that."""
    ctypes.CDLL(str(build(SOLUTIONS / name, ("80", "90")).path))


def test_a_cache_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "file"))
    with pytest.raises(NoRoomError, match=r"cannot write .*file/cuda: .*Set YAIE_CACHE"):
        build(lab, ("80",), fake_nvcc(tmp_path))


def test_a_compiler_without_room_is_not_taken_for_a_wrong_file(tmp_path: Path, lab: Path) -> None:
    said = "norm.cu(1): error: error writing to /tmp/x.s: No space left on device"
    with pytest.raises(NoRoomError, match=r"could not write: No space left on device. Free some"):
        build(lab, ("80",), fake_nvcc(tmp_path, f"echo '{said}' >&2; exit 1"))
    assert list((tmp_path / "cache").rglob("*.so")) == []


def test_a_source_and_a_compilers_words_may_hold_any_bytes(tmp_path: Path, lab: Path) -> None:
    (lab / "norm.cu").write_bytes(KERNEL.encode() + b'// caf\xe9\n// NOT_IMPLEMENTED("task 1")\n')
    assert open_stubs(lab) == ["task 1"]
    with pytest.raises(KernelError, match=r"norm\.cu, line 1: caf\ufffd"):
        build(
            lab, ("80",), fake_nvcc(tmp_path, "printf 'norm.cu(1): error: caf\\351\\n' >&2; exit 1")
        )
