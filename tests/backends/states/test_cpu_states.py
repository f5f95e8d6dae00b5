"""Layers with a state in C++: what is left to PyTorch, and in which threads and vectors they run."""

from typing import Any
from unittest.mock import patch

import pytest
import torch

from solutions import state_cache
from tests.backends.states.cases import Shape, make_case
from tests.backends.states.test_state_ops import RULES, close, every_rule
from yaie.backends.cpu import build
from yaie.backends.states.cpu import CpuStateOps
from yaie.backends.states.library import library
from yaie.backends.states.torch import TorchStateOps

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())

SHAPE = Shape([5, 1, 20], [True, False, False], 1, 2, 2, 2, 24, 40, 1)
ODD_SIZES = [(4, 7), (13, 8), (16, 16), (24, 40), (65, 129)]
"""Of heads, and of their states: parts of a vector, and more than one."""
NARROW = {"AVX2": ("-mno-avx512f",), "SSE": ("-mno-avx512f", "-mno-avx2", "-mno-avx", "-mno-fma")}


class NoLibrary:
    """Nothing of it may be called."""


@every_rule
@pytest.mark.parametrize("what", ["dtype", "pieces", "mixed"])
def test_what_the_library_does_not_take_is_left_to_pytorch(rule: str, what: str) -> None:
    case = make_case(rule, SHAPE, torch.float16 if what == "dtype" else torch.float32)
    name = "v" if rule == "gated_delta_rule" else "x"
    if what == "mixed":
        case.tokens[name] = case.tokens[name].bfloat16()
    pool = case.pool.clone()
    if what == "pieces":
        pool = torch.stack([pool, pool], dim=-1)[..., 0]
    ops: Any = CpuStateOps(state_cache, NoLibrary())  # type: ignore[arg-type]
    ours = case.run(ops, pool)
    expected = case.pool.clone()
    assert torch.equal(ours, case.run(TorchStateOps(state_cache), expected))
    assert torch.equal(pool.nan_to_num(), expected.nan_to_num())


def test_a_convolution_of_five_taps_is_left_to_pytorch() -> None:
    case = make_case("short_conv", SHAPE)
    case.others["weight"] = torch.randn(len(case.others["weight"]), 5)
    pool = torch.randn(12, len(case.others["weight"]), 4)
    ours = case.run(CpuStateOps(state_cache, NoLibrary()), pool.clone())  # type: ignore[arg-type]
    assert torch.equal(ours, case.run(TorchStateOps(state_cache), pool))


@every_rule
def test_slots_may_lie_apart(rule: str) -> None:
    """As those of one layer do, where a pool has all layers of a slot side by side."""
    case = make_case(rule, SHAPE)
    layers = torch.stack([case.pool] * 3, dim=1)
    out = case.run(CpuStateOps(state_cache, library()), layers[:, 1])
    expected, states = case.expected()
    close(out[: case.rows], expected[: case.rows])
    ran = case.batch.slots[:3]
    close(layers[ran, 1], states[ran])
    for other in (0, 2):
        assert torch.equal(layers[:, other].nan_to_num(), case.pool.nan_to_num())


@every_rule
def test_threads_change_no_bit(rule: str) -> None:
    case = make_case(rule, SHAPE._replace(lens=[50, 64, 40], d=64, d_state=64))
    results = []
    for threads in (1, 4):
        pool = case.pool.clone()
        with patch.object(torch, "get_num_threads", lambda count=threads: count):
            results.append(
                (case.run(CpuStateOps(state_cache, library()), pool), pool[case.batch.slots[:3]])
            )
    (one, one_pool), (four, four_pool) = results
    assert torch.equal(one, four)
    assert torch.equal(one_pool, four_pool)


@pytest.mark.parametrize(("d", "d_state"), ODD_SIZES)
@every_rule
def test_a_part_of_a_vector_stays_within_its_row(rule: str, d: int, d_state: int) -> None:
    vectors(CpuStateOps(state_cache, library()), rule, d, d_state)


@pytest.mark.nightly
@pytest.mark.skipif(
    "avx512f" not in build.processor_flags(), reason="no wider vectors to leave out"
)
@pytest.mark.parametrize("name", NARROW)
def test_in_narrower_vectors(name: str) -> None:
    ops = CpuStateOps(state_cache, library(NARROW[name]))
    for rule in RULES:
        for d, d_state in ODD_SIZES:
            vectors(ops, rule, d, d_state)


def vectors(ops: CpuStateOps, rule: str, d: int, d_state: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        case = make_case(rule, SHAPE._replace(d=d, d_state=d_state), dtype)
        pool = case.pool.clone()
        out = case.run(ops, pool)
        expected, states = case.expected()
        close(out[: case.rows], expected[: case.rows], dtype)
        ran = case.batch.slots[:3]
        close(pool[ran], states[ran], pool.dtype)
        others = [slot for slot in range(len(pool) - 1) if slot not in ran.tolist()]
        assert pool[others].isnan().all()
