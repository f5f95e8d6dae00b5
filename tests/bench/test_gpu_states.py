"""What `yaie.bench.evidence.gpu_states` times is what it says; its figures come from a GPU."""

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

from solutions import state_cache
from yaie.backends.states import triton as launches
from yaie.backends.states.torch import TorchStateOps
from yaie.backends.states.triton import TritonStateOps
from yaie.bench.evidence import gpu_states
from yaie.bench.evidence.gpu_states import TOLERANCE, TRIED, Sizes, beside_fla, call_of, checked

SMALL = Sizes(heads=1, v_heads=2, d=16, scan_heads=2, p=16, n_state=16)
BYTES = {  # of two sequences' states, read and written, and of each of 71 tokens
    "gated_delta_rule": (2 * 2 * 2 * 16 * 16 * 4, (2 * 16 + 2 * 32) * 2 + 2 * 2 * 4),
    "short_conv": (2 * 2 * 64 * 3 * 2, 2 * 64 * 2),
    "selective_scan": (2 * 2 * 2 * 16 * 16 * 4, (2 * 32 + 2 * 16) * 2 + 2 * 4),
}


@pytest.mark.parametrize("rule", BYTES)
def test_a_call_is_checked_and_its_bytes_are_counted(rule: str) -> None:
    call = call_of(rule, [1, 70], SMALL, "cpu")
    assert checked(call, TritonStateOps(state_cache)) < TOLERANCE
    of_states, of_a_token = BYTES[rule]
    assert call.num_bytes() == of_states + 71 * of_a_token


def test_a_wrong_result_is_not_timed() -> None:
    call = call_of("gated_delta_rule", [3], SMALL, "cpu")
    wrong = patch.object(TorchStateOps, "gated_delta_rule", lambda self, **given: given["v"])
    with wrong, pytest.raises(AssertionError, match="off by"):
        checked(call, TritonStateOps(state_cache))


def test_without_fla_its_figures_are_missing() -> None:
    with patch.dict("sys.modules", {"fla.ops.gated_delta_rule": None}):
        assert "missing" in beside_fla(call_of("gated_delta_rule", [1], SMALL, "cpu"))


@pytest.mark.parametrize(("block", "programs"), [(16, 2), (64, 1)])
def test_what_is_tried_is_what_a_kernel_is_launched_with(block: int, programs: int) -> None:
    call = call_of("gated_delta_rule", [70], SMALL._replace(d=32), "cpu")
    kernel, grids = launches.delta_chunks_kernel, []

    def launched(grid: tuple[int, ...]) -> Any:
        grids.append(grid)
        return kernel[grid]

    with (
        patch.object(launches, "DELTA_CHUNKS", launches.Launch(block, 4)),
        patch.object(launches, "delta_chunks_kernel") as watched,
    ):
        watched.__getitem__.side_effect = launched
        call.run(TritonStateOps(state_cache), call.pool)
    assert grids == [(programs, 2, 1)]


def test_a_layer_gives_the_same_whatever_stands_around_the_rule() -> None:
    results = []

    def measured(run: Any, sets: list[tuple[Tensor, ...]]) -> Any:
        results.append(run(*(one.clone() for one in sets[0])))
        return SimpleNamespace(median=1.0)

    with patch.object(gpu_states, "measure", measured):
        assert gpu_states.layer([3], SMALL, "cpu") == {"triton": 1.0, "torch": 1.0}
    ours, plain = (one.float() for one in results)
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.02)


def test_there_is_a_launch_of_each_name_that_is_tried() -> None:
    assert [name for name in TRIED if not hasattr(launches, name)] == []
