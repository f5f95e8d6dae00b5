"""CUDA on the CPU computes what a GPU would, and counts what it would move."""

import shutil
from pathlib import Path

import pytest
import torch

from yaie.cuda.on_cpu import KernelFault, Launch, OnCpu, recording, settings

SAMPLES = Path(__file__).parent / "samples"
pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"
)
INT = torch.int32


@pytest.fixture(scope="module")
def samples() -> OnCpu:
    return OnCpu(SAMPLES)


def launch_of(samples: OnCpu, name: str, *arguments: object) -> Launch:
    with recording() as launches:
        samples.call(name, *arguments)
    (launch,) = launches
    return launch


def test_shuffles_votes_and_reductions(samples: OnCpu) -> None:
    out = torch.zeros(17, 32)
    for seed in range(3):
        with settings(seed=seed):
            samples.call("warp_results", out)
        lane = torch.arange(32)
        expected = [
            torch.full((32,), 5),
            lane // 8 * 8 + 1,
            torch.where(lane < 2, lane, lane - 2),
            torch.where(lane > 29, lane, lane + 2),
            torch.where(lane % 4 > 1, lane, lane + 2),
            lane ^ 16,
            torch.full((32,), 7),
            torch.full((32,), 1),
            torch.full((32,), 0),
            torch.full((32,), 496),
            torch.full((32,), -9),
            torch.full((32,), 3),
            torch.where(lane < 16, 255, 0),
            torch.where(lane < 16, lane ^ 1, lane ^ 2),
            lane ^ 1,
            lane ^ 1,
            torch.full((32,), 32),
        ]
        assert torch.equal(out, torch.stack(expected).float())


def test_functions_on_numbers(samples: OnCpu) -> None:
    out = torch.zeros(21)
    samples.call("number_results", out, torch.arange(4.0))
    counter = out[19].item()
    samples.call("number_results", out, torch.arange(4.0))
    expected = [
        0.5, 8, 1, 0, 0.25, 1.5, 8, 31, 4, 3, 1, 3, 2, 32, 2, 3, 7, 3, 12, counter + 1, 6,
    ]  # fmt: skip
    assert out.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_conversions_round_as_torch_does(samples: OnCpu, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    exponents = torch.randint(-12, 7, (20_000,))
    special = [
        0.0,
        -0.0,
        float("inf"),
        -float("inf"),
        65504,
        65519.9,
        65520,
        1e-8,
        6e-8,
        2.98e-8,
        1e-40,
    ]
    x = torch.cat([torch.randn(20_000) * 10.0**exponents, torch.tensor(special)])
    out = torch.empty(len(x), dtype=dtype)
    samples.call("round_to", x, out, len(x), dtype)
    assert torch.equal(out, x.to(dtype))
    nan = torch.empty(1, dtype=dtype)
    samples.call("round_to", torch.tensor([float("nan")]), nan, 1, dtype)
    assert nan.isnan().all()


def test_atomics(samples: OnCpu) -> None:
    out, wide, real = torch.zeros(6, dtype=INT), torch.zeros(1, dtype=torch.int64), torch.zeros(1)
    samples.call("atomic_results", out, wide, real)
    assert out.tolist() == [64, 31, -31, 255, 7, 3]
    assert (wide.item(), real.item()) == (64, 32.0)


def test_grids_and_blocks_of_three_dimensions(samples: OnCpu) -> None:
    out = torch.zeros(12, 24, dtype=INT)
    samples.call("all_positions", out)
    assert torch.equal(out, torch.arange(12)[:, None] * 1000 + torch.arange(24))


def test_votes_of_a_block(samples: OnCpu) -> None:
    out = torch.zeros(3, dtype=INT)
    samples.call("block_votes", out)
    assert out.tolist() == [22, 1, 0]


def test_order_of_threads_follows_the_seed(samples: OnCpu) -> None:
    def order(seed: int) -> list[int]:
        out = torch.zeros(64, dtype=INT)
        with settings(seed=seed):
            samples.call("arrival_order", out, torch.zeros(1, dtype=INT))
        return out.tolist()

    assert sorted(order(0)) == list(range(64))
    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != list(range(64))


def test_arguments_of_both_kinds_in_any_number(samples: OnCpu) -> None:
    x, y = torch.ones(8), torch.ones(8)
    samples.call("many_arguments", 1, 2.0, 2, x, 0.5, 3, 4, 8, y, 5)
    assert x.tolist() == [2.5] * 8
    assert y.tolist() == [17.0] * 8


# Counting


def test_neighbouring_threads_share_sectors(samples: OnCpu) -> None:
    launch = launch_of(samples, "copy_strided", torch.ones(1024), torch.ones(1024), 2, 1)
    assert (launch.kernel, launch.grid, launch.block) == ("copy", (2, 1, 1), (64, 1, 1))
    for traffic in (launch.global_loads, launch.global_stores):
        assert (traffic.count, traffic.bytes, traffic.requests) == (128, 512, 4)
        assert (traffic.sectors, traffic.ideal_sectors, traffic.efficiency) == (16, 16, 1.0)
    assert launch.global_bytes == 1024


def test_strided_threads_do_not(samples: OnCpu) -> None:
    launch = launch_of(samples, "copy_strided", torch.ones(1024), torch.ones(1024), 2, 8)
    assert (launch.global_loads.sectors, launch.global_loads.ideal_sectors) == (128, 16)
    assert launch.global_loads.efficiency == 1 / 8


def test_a_vector_is_one_access(samples: OnCpu) -> None:
    loads = launch_of(
        samples, "copy_vectors_of_four", torch.ones(512), torch.ones(512), 2
    ).global_loads
    assert (loads.count, loads.bytes, loads.requests, loads.sectors) == (128, 2048, 4, 64)


def test_a_broadcast_reads_one_sector(samples: OnCpu) -> None:
    loads = launch_of(samples, "all_read_one", torch.ones(1), torch.ones(32)).global_loads
    assert (loads.count, loads.sectors, loads.ideal_sectors) == (32, 1, 1)


def test_bank_conflicts_of_a_transpose(samples: OnCpu) -> None:
    x, out = torch.randn(32, 32), torch.zeros(32, 32)
    conflicting = launch_of(samples, "transpose_conflicting", x, out)
    assert torch.equal(out, x.T)
    assert conflicting.shared_loads.extra_passes == 32 * 31
    assert conflicting.shared_stores.extra_passes == 0
    padded = launch_of(samples, "transpose_padded", x, out)
    assert torch.equal(out, x.T)
    assert padded.bank_conflicts == 0
    assert padded.shared_loads.requests == 32


def test_vectors_in_shared_memory_take_a_quarter_of_a_warp_at_a_time(samples: OnCpu) -> None:
    launch = launch_of(samples, "shared_vectors_of_four", torch.zeros(128))
    assert launch.bank_conflicts == 0
    assert launch.shared_loads.bytes == 512


def test_structs_that_functions_return_are_watched_where_they_are_stored(samples: OnCpu) -> None:
    x, out, small = torch.randn(32), torch.zeros(32), torch.zeros(8, dtype=torch.float16)
    launch = launch_of(samples, "store_returned_structs", x, out, small)
    assert torch.equal(out, 2 * x)
    assert torch.equal(small, x[:8].half())
    assert (launch.global_stores.count, launch.global_stores.bytes) == (16, 8 * 16 + 8 * 2)
    with pytest.raises(KernelFault, match=r"past the end of small \[1\]"):
        samples.call("store_returned_structs", x, out, small[:1])


def test_barriers_collectives_and_atomics(samples: OnCpu) -> None:
    launch = launch_of(samples, "barriers_and_atomics", torch.zeros(1, dtype=INT), 3)
    assert (launch.barriers, launch.collectives, launch.atomics) == (6, 6, 6)
    assert (launch.blocks, launch.threads) == (3, 64)


def test_traffic_is_told_line_by_line(samples: OnCpu) -> None:
    launch = launch_of(samples, "transpose_conflicting", torch.ones(32, 32), torch.zeros(32, 32))
    source = (SAMPLES / "counting.cu").read_text("utf-8").splitlines()
    worst = max(launch.lines, key=lambda line: line.traffic.extra_passes)
    assert (worst.file, worst.kind) == ("counting.cu", "shared load")
    assert "tile[threadIdx.x][row]" in source[worst.line - 1]


def test_recordings_within_each_other_both_see(samples: OnCpu) -> None:
    with recording() as outer:
        samples.call("all_read_one", torch.ones(1), torch.ones(32))
        with recording() as inner:
            samples.call("all_read_one", torch.ones(1), torch.ones(32))
    assert (len(outer), len(inner)) == (2, 1)
