"""Barriers, shuffles, votes and loops in which a thread waits for what never comes."""

import pytest
import torch

from tests.cuda.test_on_cpu import SAMPLES, fault_of, line_of, ones, pytestmark  # noqa: F401
from yaie.cuda.on_cpu import OnCpu, settings


@pytest.fixture(scope="module")
def samples() -> OnCpu:
    return OnCpu(SAMPLES)


def test_barrier_that_a_returned_thread_skips(samples: OnCpu) -> None:
    fault = fault_of(samples, "barrier_after_return", ones(64), 40)
    assert fault.kind == "barrier"
    line = line_of("waiting.cu", "__syncthreads()")
    assert fault.message == (
        "barrier skipped in return_early: 40 threads of block 0 (thread 0 is one) wait at "
        f"__syncthreads() (waiting.cu:{line}), but thread 40 has returned"
    )
    samples.call("barrier_after_return", ones(64), 64)


def test_barriers_on_two_lines_are_two(samples: OnCpu) -> None:
    fault = fault_of(samples, "barrier_in_a_branch", ones(64))
    assert fault.kind == "barrier"
    assert "but thread 32 waits at __syncthreads() (waiting.cu:" in fault.message


def test_mask_that_names_lanes_that_never_come(samples: OnCpu) -> None:
    fault = fault_of(samples, "lanes_that_returned", ones(32), 20)
    assert fault.kind == "deadlock"
    assert "thread 0 of block 0 waits in __shfl_xor_sync() (waiting.cu:" in fault.message
    assert "with mask 0xffffffff for lanes 20-31, but thread 20 has returned" in fault.message
    fault = fault_of(samples, "lanes_at_a_barrier", ones(32))
    assert "but thread 1 waits at __syncthreads()" in fault.message


def test_active_mask_that_names_lanes_that_never_come(samples: OnCpu) -> None:
    fault = fault_of(samples, "active_before_the_branch", ones(32))
    assert fault.kind == "deadlock"
    assert "thread 0 of block 0 waits in __ballot_sync() (waiting.cu:" in fault.message
    assert "with mask 0xffffffff for lanes 16-31, but thread 16 has returned" in fault.message


def test_active_mask_names_all_lanes_that_come_to_its_line(samples: OnCpu) -> None:
    """A GPU may name fewer: the page on the stand-in says so."""
    out = torch.zeros(32)
    samples.call("active_in_the_branch", out)
    assert out.tolist() == [16.0] * 16 + [0.0] * 16


def test_shuffle_from_a_lane_outside_the_mask(samples: OnCpu) -> None:
    fault = fault_of(samples, "lane_not_in_mask", ones(32))
    assert fault.kind == "undefined"
    assert "takes a value from lane 16, which its mask does not name" in fault.message


def test_loop_without_end_is_stopped(samples: OnCpu) -> None:
    with settings(step_limit=10_000):
        fault = fault_of(samples, "runaway", ones(1))
    assert fault.kind == "runaway"
    assert "has taken 10,000 steps and is still in a loop (waiting.cu:" in fault.message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("divides_by_zero", "16 divided by 0"),
        ("overflows", "100000 * 100000 has no value of type int"),
        ("shifts_too_far", "1 shifted by 40 bits"),
    ],
)
def test_what_c_leaves_undefined(samples: OnCpu, name: str, says: str) -> None:
    out = ones(1) if name == "divides_by_zero" else torch.zeros(1, dtype=torch.int32)
    fault = fault_of(samples, name, out)
    assert fault.kind == "undefined"
    assert says in fault.message
