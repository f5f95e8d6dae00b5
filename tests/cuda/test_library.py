"""Calling a library's functions with tensors."""

from pathlib import Path

import pytest
import torch

from yaie.core.errors import KernelError
from yaie.cuda import CudaLibrary
from yaie.cuda.library import OnGpu, signatures

SCALE = """#include "yaie.cuh"

template <typename T> __global__ void scale(const T* x, T* y, int64_t n, float factor) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = from_float<T>(to_float(x[i]) * factor);
}

YAIE_API int scale_by(const void* x, void* y, const void* nothing, int64_t n, float factor,
                      int64_t dtype, int64_t threads, cudaStream_t stream) {
    if (nothing != nullptr) return 1;
    DISPATCH(dtype, T, return launch(scale<T>, dim3((n + threads - 1) / threads), dim3(threads), 0,
                                     stream, (const T*)x, (T*)y, n, factor));
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CudaLibrary:
    folder = tmp_path_factory.mktemp("labs") / "cuda_scale"
    folder.mkdir()
    (folder / "scale.cu").write_text(SCALE)
    return CudaLibrary(folder)


def scaled(library: CudaLibrary, x: torch.Tensor, threads: int = 64) -> torch.Tensor:
    y = torch.empty_like(x)
    library.call("scale_by", x, y, None, x.numel(), 2.5, x.dtype, threads)
    return y


def test_a_call_needs_a_tensor(library: CudaLibrary) -> None:
    with pytest.raises(KernelError, match="needs a tensor"):
        library.call("scale_by", 1, 2.0)


def test_a_device_without_cuda_kernels_is_refused(library: CudaLibrary) -> None:
    with pytest.raises(KernelError, match="meta"):
        library.call("scale_by", torch.empty(1, device="meta"))


def test_signatures_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(
        "// YAIE_API int old(int64_t n)\n"
        "YAIE_API int two(const void* x,\n  float factor, cudaStream_t stream) { return 0; }\n"
        "/* YAIE_API int dead(float x) */ int helper(int64_t n);\n"
    )
    assert signatures(tmp_path) == {"two": ["const void* x", "float factor", "cudaStream_t stream"]}


def test_an_error_that_ends_the_process_s_use_of_the_gpu_is_said() -> None:
    class Library:
        def yaie_error_string(self, code: int) -> bytes:
            return b"what it is"

    on_gpu = object.__new__(OnGpu)
    on_gpu._lab, on_gpu._library = "cuda_ops", Library()  # type: ignore[assignment]
    assert on_gpu._explain("norm", 9) == "cuda_ops.norm: CUDA error 9, what it is"
    lost = on_gpu._explain("norm", 700)
    assert "start again" in lost
    assert "CPU tensors" in lost


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_every_kind_of_argument_arrives(library: CudaLibrary, dtype: torch.dtype, n: int) -> None:
    x = torch.randn(n, device="cuda").to(dtype)
    torch.testing.assert_close(scaled(library, x), (x.float() * 2.5).to(dtype))


@pytest.mark.gpu
def test_a_call_runs_on_the_current_stream(library: CudaLibrary) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1
        y = scaled(library, x)
        z = y + 1
    stream.synchronize()
    assert bool((z == 3.5).all())


@pytest.mark.gpu
def test_a_call_can_be_recorded_in_a_graph(library: CudaLibrary) -> None:
    x = torch.ones(100, device="cuda")
    scaled(library, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = scaled(library, x)
    x.fill_(4)
    graph.replay()
    assert bool((y == 10).all())


@pytest.mark.gpu
def test_a_launch_that_is_refused_raises_and_the_next_one_works(library: CudaLibrary) -> None:
    x = torch.ones(10, device="cuda")
    with pytest.raises(KernelError, match=r"cuda_scale.scale_by: CUDA error \d+, invalid"):
        scaled(library, x, threads=4096)
    assert bool((scaled(library, x) == 2.5).all())


@pytest.mark.gpu
def test_a_function_that_is_not_there_is_named(library: CudaLibrary) -> None:
    with pytest.raises(KernelError, match="no YAIE_API function nothing_here; it has scale_by"):
        library.call("nothing_here", torch.ones(1, device="cuda"))


@pytest.mark.gpu
def test_too_few_arguments_are_counted_before_anything_runs(library: CudaLibrary) -> None:
    with pytest.raises(
        KernelError, match="takes 7 arguments and the stream, and was called with 1"
    ):
        library.call("scale_by", torch.ones(1, device="cuda"))


@pytest.mark.gpu
def test_memory_of_the_host_must_be_pinned(library: CudaLibrary) -> None:
    x = torch.ones(10, device="cuda")
    with pytest.raises(KernelError, match="not pinned"):
        library.call("scale_by", x, torch.empty(10), None, 10, 2.5, x.dtype, 64)
    y = torch.empty(10).pin_memory()
    library.call("scale_by", x, y, None, 10, 2.5, x.dtype, 64)
    torch.cuda.synchronize()
    assert bool((y == 2.5).all())


@pytest.mark.gpu
def test_a_stub_is_refused_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "stub.cu").write_text('YAIE_API int f() { NOT_IMPLEMENTED("lab task 14.1: no"); }')
    with pytest.raises(NotImplementedError, match=r"lab task 14\.1"):
        CudaLibrary(tmp_path).call("f", torch.ones(1, device="cuda"))
