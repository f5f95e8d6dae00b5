"""Launches that are only looked at, and tables of addresses that stay what they are."""

import shutil

import pytest
import torch

from yaie.core.errors import KernelError
from yaie.cuda.on_cpu import KernelFault, OnCpu, recording, settings
from yaie.cuda.tables import AddressTable

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"
)
SOURCE = """\
#include <yaie.cuh>

__global__ void fill(float* x) { x[blockIdx.y] = 1.0f; }
YAIE_API int fill_rows(float* x, int64_t rows, cudaStream_t stream) {
    return launch(fill, dim3(1, rows), dim3(1), 0, stream, x);
}

__global__ void fill_all(const int64_t* table, int64_t tensors) {
    reinterpret_cast<float*>(table[threadIdx.x])[0] += 1.0f;
}
YAIE_API int fill_tensors(const int64_t* table, int64_t tensors, cudaStream_t stream) {
    return launch(fill_all, dim3(1), dim3(tensors), 0, stream, table, tensors);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> OnCpu:
    folder = tmp_path_factory.mktemp("dry")
    (folder / "fill.cu").write_text(SOURCE)
    return OnCpu(folder)


def test_a_dry_launch_is_recorded_and_does_nothing(library: OnCpu) -> None:
    x = torch.zeros(5)
    with settings(dry=True), recording() as launches:
        library.call("fill_rows", x, 5)
    assert [launch.grid for launch in launches] == [(1, 5, 1)]
    assert not x.any()
    library.call("fill_rows", x, 5)
    assert bool(x.all())


def test_a_dry_launch_is_refused_as_any(library: OnCpu) -> None:
    with settings(dry=True), pytest.raises(KernelFault) as caught:
        library.call("fill_rows", torch.zeros(1), 70_000)
    assert caught.value.kind == "launch"


def test_a_failing_launch_returns_an_error_and_does_nothing(library: OnCpu) -> None:
    x = torch.zeros(5)
    with settings(failing=True), pytest.raises(KernelError, match=r"fill_rows returned 9"):
        library.call("fill_rows", x, 5)
    assert x.tolist() == [0.0] * 5
    library.call("fill_rows", x, 5)
    assert x.tolist() == [1.0] * 5


def test_a_table_keeps_the_addresses_of_its_tensors(library: OnCpu) -> None:
    tensors = [torch.zeros(4), torch.zeros(4)]
    table = torch.tensor([t.data_ptr() for t in tensors]).as_subclass(AddressTable)
    before = table.clone()
    for count in (1, 2):
        table.reaches = tensors
        library.call("fill_tensors", table, 2)
        assert torch.equal(table, before)
        assert [float(t[0]) for t in tensors] == [count, count]
        # A larger call in between lays its tensors out elsewhere.
        library.call("fill_rows", torch.zeros(2**20), 3)
