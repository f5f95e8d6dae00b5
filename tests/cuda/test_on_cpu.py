"""CUDA on the CPU finds what is wrong with a kernel, says so in words, and lets right kernels pass."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from yaie.core.errors import KernelError
from yaie.cuda.on_cpu import KernelFault, OnCpu, faults, recording, settings

SAMPLES = Path(__file__).parent / "samples"
pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"
)


@pytest.fixture(scope="module")
def samples() -> OnCpu:
    return OnCpu(SAMPLES)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


def line_of(file: str, text: str, nth: int = 1) -> int:
    lines = (SAMPLES / file).read_text("utf-8").splitlines()
    return [i for i, line in enumerate(lines, 1) if text in line][nth - 1]


def fault_of(samples: OnCpu, name: str, *arguments: object) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        samples.call(name, *arguments)
    return caught.value


# Races


def test_missing_barrier_is_a_race_that_names_array_threads_and_lines(samples: OnCpu) -> None:
    fault = fault_of(samples, "missing_barrier", ones(64), ones(1))
    reads, writes = (
        line_of("races.cu", "out[0] = partial"),
        line_of("races.cu", "partial[threadIdx.x /"),
    )
    assert fault.kind == "race"
    assert fault.message == (
        "race in block_sum<false>: thread 0 of block 0 reads element 1 of shared partial "
        f"(races.cu:{reads}), thread 32 wrote it (races.cu:{writes}), and no __syncthreads() stands "
        "between"
    )
    assert fault.where == f"races.cu:{reads}"
    assert fault.other_where == f"races.cu:{writes}"
    assert fault.file == SAMPLES / "races.cu"
    assert fault.line == reads
    out = ones(1)
    samples.call("with_barrier", ones(64), out)
    assert out.item() == 64


@pytest.mark.parametrize("seed", range(5))
def test_races_are_found_in_any_order_of_threads(samples: OnCpu, seed: int) -> None:
    with settings(seed=seed):
        assert fault_of(samples, "missing_barrier", ones(64), ones(1)).kind == "race"
        assert fault_of(samples, "missing_syncwarp", ones(32), ones(32)).kind == "race"
        assert fault_of(samples, "write_after_read", ones(64)).kind == "race"
        assert fault_of(samples, "race_of_blocks", ones(1)).kind == "race"


def test_lanes_of_a_warp_are_not_in_step(samples: OnCpu) -> None:
    fault = fault_of(samples, "missing_syncwarp", ones(32), ones(32))
    assert "of shared row" in fault.message
    assert fault.message.endswith("and neither __syncwarp() nor __syncthreads() stands between")
    samples.call("with_syncwarp", ones(32), ones(32))


def test_blocks_race_unless_they_use_atomics(samples: OnCpu) -> None:
    fault = fault_of(samples, "race_of_blocks", ones(1))
    assert "total[0]" in fault.message
    assert fault.message.endswith("and the blocks of a launch run in any order")
    total = ones(1)
    samples.call("atomic_blocks", total)
    assert total.item() == 5


def test_fence_and_atomic_order_blocks(samples: OnCpu) -> None:
    def zero() -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int32)

    out = ones(1)
    for seed in range(5):
        with settings(seed=seed):
            samples.call("with_fence", ones(8), zero(), out)
        assert out.item() == sum(range(8))
    assert fault_of(samples, "missing_fence", ones(8), zero(), out).kind == "race"


def test_plain_read_beside_atomics_is_a_race(samples: OnCpu) -> None:
    x, out = torch.zeros(128, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    fault = fault_of(samples, "read_beside_atomic", x, out)
    assert fault.kind == "race"
    assert "atomic" in fault.message


def test_neighbours_in_one_word_do_not_race(samples: OnCpu) -> None:
    halves, data = ones(64, dtype=torch.float16), torch.zeros(64, dtype=torch.int8)
    samples.call("neighbouring_halves", halves, data)
    assert torch.equal(data, torch.arange(64, dtype=torch.int8))
    assert torch.equal(halves, torch.arange(64).half())


# Addresses


def test_unmasked_tail_is_out_of_bounds(samples: OnCpu) -> None:
    fault = fault_of(samples, "unmasked_tail", ones(100), ones(100), 100)
    assert fault.kind == "out_of_bounds"
    assert "past the end of x [100] (bounds.cu:" in fault.message
    assert "of block 1 reads" in fault.message
    out = ones(100)
    samples.call("masked_tail", ones(100), out, 100)
    assert torch.equal(out, 2 * ones(100))


def test_a_load_before_its_bound_is_seen(samples: OnCpu) -> None:
    fault = fault_of(samples, "late_bound", ones(100), ones(100), 100)
    assert "past the end of x [100]" in fault.message
    assert fault.line == line_of("bounds.cu", "const float value")


def test_before_the_start_is_out_of_bounds(samples: OnCpu) -> None:
    fault = fault_of(samples, "before_the_start", ones(32), ones(32))
    assert "thread 0 of block 0 reads 1 element before the start of x [32]" in fault.message


def test_rows_of_a_strided_view_end_where_they_end(samples: OnCpu) -> None:
    fault = fault_of(samples, "ignores_strides", ones(4, 8)[:, :4], ones(4, 4), 16)
    assert fault.kind == "out_of_bounds"
    assert "between the rows of x: offset " in fault.message
    assert "(shape [4, 4], strides [8, 1])" in fault.message


def test_views_of_one_storage_are_one_memory(samples: OnCpu) -> None:
    fused = torch.arange(32.0).reshape(4, 8)
    samples.call("ignores_strides", fused[0, :4], fused[0, 4:], 4)
    assert fused[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    x = torch.arange(8.0)
    samples.call("masked_tail", x, x, 8)
    assert torch.equal(x, 2 * torch.arange(8.0))


def test_dynamic_shared_memory_has_the_size_of_the_launch(samples: OnCpu) -> None:
    fault = fault_of(samples, "too_little_shared", ones(64))
    assert fault.kind == "out_of_bounds"
    assert "of shared scratch, of which the launch has asked for 128 bytes" in fault.message
    samples.call("enough_shared", ones(64))


def test_index_of_a_static_array_is_checked(samples: OnCpu) -> None:
    fault = fault_of(samples, "static_index", ones(32))
    assert fault.kind == "out_of_bounds"
    assert "index 8 of an array of type float [8]" in fault.message


def test_shared_memory_is_new_for_each_block(samples: OnCpu) -> None:
    fault = fault_of(samples, "uninitialized", ones(32))
    assert fault.kind == "uninitialized"
    assert "element 31 of shared row" in fault.message
    assert fault.message.endswith("which no thread of the block has written")


@pytest.mark.skipif("clang" in os.environ.get("CXX", ""), reason="only g++ tells")
def test_vectors_lie_at_multiples_of_their_size(samples: OnCpu) -> None:
    fault = fault_of(samples, "misaligned", ones(33)[1:], ones(32))
    assert fault.kind == "misaligned"
    assert "16 bytes at once" in fault.message
    assert "is a multiple of 4 and must be one of 16" in fault.message
    x, out = torch.randn(32), ones(32)
    samples.call("misaligned", x, out)
    assert torch.equal(x, out)


def test_none_is_a_null_pointer(samples: OnCpu) -> None:
    fault = fault_of(samples, "null_pointer", None)
    assert fault.kind == "out_of_bounds"
    assert "null pointer" in fault.message


def test_host_code_does_not_reach_tensors(samples: OnCpu) -> None:
    fault = fault_of(samples, "host_reads", ones(1), ones(1))
    assert fault.kind == "host_access"
    assert "it reads x[0] (bounds.cu:" in fault.message


def test_deep_recursion_overflows_a_threads_stack(samples: OnCpu) -> None:
    assert fault_of(samples, "stack_overflow", ones(1)).kind == "stack"


def test_tensors_stay_as_they_were_after_a_fault(samples: OnCpu) -> None:
    out = torch.zeros(100)
    fault_of(samples, "unmasked_tail", ones(100), out, 100)
    assert torch.equal(out, torch.zeros(100))


# Launches and calls


@pytest.mark.parametrize(
    ("grid", "block", "shared", "says"),
    [
        (1, 2048, 0, "a block of 2048 x 1 x 1 threads"),
        (1, 0, 0, "a block of 0 x 1 x 1 threads"),
        (-1, 32, 0, "a negative number became a large one"),
        (1, 32, 300_000, "300000 bytes of shared memory asked for a block, of 232448"),
    ],
)
def test_launches_that_cuda_refuses(
    samples: OnCpu, grid: int, block: int, shared: int, says: str
) -> None:
    fault = fault_of(samples, "with_threads", ones(1), grid, block, shared)
    assert fault.kind == "launch"
    assert says in fault.message


def test_a_kernel_runs_on_the_launchers_stream(samples: OnCpu) -> None:
    fault = fault_of(samples, "on_another_stream", ones(1))
    assert fault.kind == "stream"
    assert "another stream than the one that the launcher got" in fault.message


def test_empty_grid_runs_nothing(samples: OnCpu) -> None:
    with recording() as launches:
        samples.call("with_threads", ones(1), 0, 32, 0)
    assert launches == []


def test_stubs_say_what_is_unwritten(samples: OnCpu) -> None:
    with pytest.raises(NotImplementedError, match=r"waiting task 1\.2: not implemented yet"):
        samples.call("stub_kernel", ones(1))
    with pytest.raises(NotImplementedError, match=r"waiting task 1\.1: not implemented yet"):
        samples.call("stub_launcher", ones(1))


def test_error_code_and_unknown_function(samples: OnCpu) -> None:
    with pytest.raises(KernelError, match="returned 700"):
        samples.call("returns_an_error", ones(1))
    with pytest.raises(KernelError, match="has no function nowhere"):
        samples.call("nowhere", ones(1))


def test_crash_of_host_code_ends_the_call_and_not_the_process(samples: OnCpu) -> None:
    assert fault_of(samples, "host_crash", ones(1)).kind == "crash"
    assert fault_of(samples, "trap", ones(1)).kind == "trap"
    out = ones(1)
    samples.call("with_barrier", ones(64), out)
    assert out.item() == 64


@pytest.mark.parametrize(
    ("shape", "named"),
    [((12, 1, 1), "7"), ((4, 3, 1), "(3, 1)"), ((2, 2, 3), "(1, 1, 1)"), ((1, 1, 12), "(0, 0, 7)")],
)
def test_a_thread_is_named_in_as_many_dimensions_as_its_block_has(
    shape: tuple[int, int, int], named: str
) -> None:
    assert faults._index(7, shape) == named
