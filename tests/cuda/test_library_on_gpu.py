"""What a library does on a GPU, without one: a stand-in driver is called through ctypes as it would be.

The driver is a real shared library, compiled by the machine's C++ compiler, whose functions write down
what has arrived. Tensors say that they lie on a GPU, and are addresses to ctypes.
"""

import ctypes
import re
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from yaie.core.errors import KernelError
from yaie.cuda import CudaLibrary, library
from yaie.cuda.library import DTYPES, LOST, OnGpu
from yaie.cuda.nvcc import find_host_compiler

SOURCE = """\
YAIE_API int note(const void* x, void* y, int64_t n, float factor, int64_t dtype, cudaStream_t stream);
YAIE_API int fail(const void* x, int64_t code, cudaStream_t stream);
YAIE_API int missing(const void* x, cudaStream_t stream);
"""
DRIVER = """\
#include <cstdint>
static struct { const void *x; void *y; int64_t n; double factor; int64_t dtype; void *stream; } seen;
extern "C" int note(const void* x, void* y, int64_t n, float factor, int64_t dtype, void* stream) {
    seen = {x, y, n, factor, dtype, stream};
    return 0;
}
extern "C" int fail(const void* x, int64_t code, void* stream) { return int(code); }
extern "C" const char* yaie_error_string(int code) { return code == 1 ? "invalid argument" : "lost"; }
extern "C" void* what_was_seen() { return &seen; }
"""
STREAM = 0x5EED


class Seen(ctypes.Structure):
    """What `note` was called with."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("factor", ctypes.c_double),
        ("dtype", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
    )


class Lying(torch.Tensor):
    """A tensor of the CPU that says that it lies on GPU `index`."""

    index = 0
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cuda", self.index))  # type: ignore[assignment]

    def get_device(self) -> int:
        return self.index


class Pinned(torch.Tensor):
    """Memory of the host that a GPU can read."""

    def is_pinned(self, device: Any = None) -> bool:
        return True


def on_gpu(values: int = 4, index: int = 0) -> Lying:
    tensor = torch.zeros(values).as_subclass(Lying)
    tensor.index = index
    return tensor


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(DRIVER)
    target = folder / "driver.so"
    compiler = find_host_compiler()
    assert compiler is not None, "a C++ compiler is needed: apt install g++"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, folder / "driver.cpp"], check=True)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cuda_noted"
    folder.mkdir()
    (folder / "noted.cu").write_text(SOURCE)
    return folder


class Gpu:
    """Stands in for the two GPUs that torch would see. entered: the devices that were made current."""

    def __init__(self) -> None:
        self.current = 0
        self.entered: list[int] = []

    @contextmanager
    def device(self, index: int):
        before, self.current = self.current, index
        self.entered.append(index)
        yield
        self.current = before


@pytest.fixture
def gpu(driver: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: gpu.current)
    monkeypatch.setattr(torch.cuda, "device", gpu.device)
    stream = lambda: SimpleNamespace(cuda_stream=STREAM + gpu.current)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(library, "device_architecture", lambda index: f"of gpu {index}")
    monkeypatch.setattr(library, "library_for", lambda folder, architecture: driver)
    return gpu


@pytest.fixture
def seen(driver: Path) -> Callable[[], Seen]:
    loaded = ctypes.CDLL(str(driver))
    loaded.what_was_seen.restype = ctypes.POINTER(Seen)
    return lambda: loaded.what_was_seen().contents


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_argument_arrives(
    folder: Path, gpu: Gpu, seen: Callable[[], Seen], dtype: torch.dtype
) -> None:
    x, many = on_gpu(), 2**40 + 7  # more than 32 bits hold
    CudaLibrary(folder).call("note", x, None, many, 2.5, dtype)
    told = seen()
    assert (told.x, told.y, told.n) == (x.data_ptr(), None, many)
    assert (told.factor, told.dtype, told.stream) == (2.5, DTYPES[dtype], STREAM)
    assert gpu.entered == []


def test_the_numbers_of_dtypes_are_those_of_the_header() -> None:
    header = (Path(library.__file__).parent / "include/dtypes.cuh").read_text()
    told = dict(re.findall(r"\b(B?FLOAT\d+) = (\d)\b", header))
    assert told == {
        str(dtype).partition(".")[2].upper(): str(number) for dtype, number in DTYPES.items()
    }


def test_a_call_runs_on_the_gpu_of_its_tensors_and_leaves_the_current_one(
    folder: Path, gpu: Gpu, seen: Callable[[], Seen]
) -> None:
    CudaLibrary(folder).call("note", on_gpu(index=1), None, 1, 1.0, torch.float32)
    assert seen().stream == STREAM + 1
    assert (gpu.entered, gpu.current) == ([1], 0)


def test_each_gpu_has_a_library_of_its_architecture(
    folder: Path, gpu: Gpu, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(library, "library_for", lambda _, name: asked.append(name) or driver)
    noted = CudaLibrary(folder)
    for index in (0, 1, 0, 1):
        noted.call("note", on_gpu(index=index), None, 1, 1.0, torch.float32)
    assert asked == ["of gpu 0", "of gpu 1"]


def test_memory_of_the_host_must_be_pinned_or_empty(
    folder: Path, gpu: Gpu, seen: Callable[[], Seen]
) -> None:
    noted, x = CudaLibrary(folder), on_gpu()
    with pytest.raises(
        KernelError, match=r"note: a tensor \[3\] lies on the CPU and is not pinned"
    ):
        noted.call("note", x, torch.zeros(3), 1, 1.0, torch.float32)
    pinned = torch.zeros(3).as_subclass(Pinned)
    noted.call(
        "note", pinned, x, 1, 1.0, torch.float32
    )  # the GPU's decides where, wherever it stands
    assert (seen().x, seen().y) == (pinned.data_ptr(), x.data_ptr())
    noted.call("note", x, torch.zeros(0), 1, 1.0, torch.float32)


def test_tensors_of_two_gpus_are_refused(folder: Path, gpu: Gpu) -> None:
    with pytest.raises(KernelError, match="tensors lie on cuda:0 and on cuda:1"):
        CudaLibrary(folder).call("note", on_gpu(), on_gpu(index=1), 1, 1.0, torch.float32)


def test_arguments_are_counted_before_anything_runs(folder: Path, gpu: Gpu) -> None:
    with pytest.raises(
        KernelError, match="note takes 5 arguments and the stream, and was called with 1"
    ):
        CudaLibrary(folder).call("note", on_gpu())


@pytest.mark.parametrize("name", ["nothing_here", "missing"])
def test_a_function_that_the_source_or_the_library_lacks_is_named(
    folder: Path, gpu: Gpu, name: str
) -> None:
    with pytest.raises(
        KernelError, match=f"no YAIE_API function {name}; it has fail, missing, note"
    ):
        CudaLibrary(folder).call(name, on_gpu())


@pytest.mark.parametrize("code", [1, *sorted(LOST)])
def test_a_code_other_than_zero_is_an_error_and_the_next_call_works(
    folder: Path, gpu: Gpu, code: int
) -> None:
    noted = CudaLibrary(folder)
    what = "invalid argument$" if code == 1 else "lost.*start again.*CPU tensors"
    with pytest.raises(KernelError, match=f"cuda_noted.fail: CUDA error {code}, {what}"):
        noted.call("fail", on_gpu(), code)
    noted.call("fail", on_gpu(), 0)


def test_a_stub_is_refused_before_it_runs(folder: Path, gpu: Gpu) -> None:
    (folder / "stub.cu").write_text('YAIE_API int f() { NOT_IMPLEMENTED("lab task 14.1: no"); }')
    with pytest.raises(NotImplementedError, match=r"lab task 14\.1"):
        CudaLibrary(folder).call("note", on_gpu(), None, 1, 1.0, torch.float32)


def test_a_library_that_cannot_be_loaded_is_named(
    folder: Path, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(library, "library_for", lambda *_: tmp_path / "half.so")
    with pytest.raises(KernelError, match=r"half\.so cannot be loaded.*delete it"):
        OnGpu(folder, torch.device("cuda", 0))
