"""The Triton kernels compile, fit into CUDA graphs, and refuse states that they cannot hold."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from grader.kit.triton_watch import watching
from solutions import state_cache
from tests.backends.states.cases import NOBODY, Shape, make_case
from tests.backends.states.test_state_ops import close, every_rule
from yaie.backends.states.triton import TritonStateOps

ROOT = Path(__file__).parents[3]
PLAIN = Shape([70, 1, 9], [True, False, False], 0, 10, 2, 2, 24, 40, 1)
OTHERS = (
    PLAIN._replace(lens=[2, 64, 9], is_fresh=[False, True, False], behind=15, seed=7),
    PLAIN._replace(lens=[1, 1, 80], is_fresh=[False, True, True], behind=8, seed=13),
)
DECODES = PLAIN._replace(lens=[1, 1, 1], behind=0)
OTHER_DECODES = (DECODES._replace(lens=[1], is_fresh=[False], padding=2, seed=19),)


@pytest.mark.gpu
@every_rule
@pytest.mark.parametrize(
    "shapes", [(PLAIN, *OTHERS), (DECODES, *OTHER_DECODES)], ids=["chunks", "decodes"]
)
def test_a_recorded_launch_fits_other_lengths(rule: str, shapes: tuple[Shape, ...]) -> None:
    """And other slots, and other sequences that begin. `lens` are bounds."""
    ops = TritonStateOps(state_cache)
    cases = [make_case(rule, shape, device="cuda") for shape in shapes]
    bounds = [1] * 3 if shapes[0] is DECODES else [90] * 3
    recorded = replace(cases[0], batch=replace(cases[0].batch, lens=bounds))
    pool = recorded.pool.clone()
    recorded.run(ops, pool)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = recorded.run(ops, pool)
    for case in cases:
        for name, one in recorded.tokens.items():
            one.copy_(case.tokens[name])
        for name in ("a", "d", "weight", "bias"):
            if isinstance(one := recorded.others.get(name), Tensor):
                case.others[name] = one
        for name in ("starts", "slots", "is_fresh"):
            getattr(recorded.batch, name).copy_(getattr(case.batch, name))
        pool.copy_(case.pool)
        graph.replay()
        expected, states = case.expected()
        close(out, expected)
        ran = case.batch.slots[case.batch.starts.diff() > 0]
        ran = ran[ran != NOBODY]
        close(pool[ran], states[ran])


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is off")
@every_rule
@pytest.mark.parametrize("shape", [PLAIN, *OTHERS, DECODES, *OTHER_DECODES])
def test_no_address_is_outside_of_a_tensor(rule: str, shape: Shape) -> None:
    """What kernels hand over among them and do not write is NaN here."""
    case = make_case(rule, shape)
    pool = case.pool.clone()
    with watching() as seen:
        out = case.run(TritonStateOps(state_cache), pool)
    assert (
        len(seen.launches)
        == {
            "short_conv": 2 - (shape.behind == 0),
            "gated_delta_rule": 1 + 2 * (shape.behind > 0),
            "selective_scan": 1 + (shape.behind > 0),
        }[rule]
    )
    close(out, case.expected()[0])


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is off")
@pytest.mark.parametrize("rule", ["gated_delta_rule", "selective_scan"])
def test_a_decode_reads_and_writes_a_state_once(rule: str) -> None:
    """And does not read one that is fresh."""
    case = make_case(rule, DECODES)
    pool = case.pool.clone()
    with watching() as seen:
        case.run(TritonStateOps(state_cache), pool)
    continued = int((~case.batch.is_fresh).sum())
    assert (seen.loads(pool), seen.stores(pool)) == (
        continued * pool[0].numel(), len(DECODES.lens) * pool[0].numel(),
    )  # fmt: skip


def test_states_that_no_program_can_hold_are_refused() -> None:
    case = make_case("gated_delta_rule", DECODES)
    ops = TritonStateOps(state_cache)
    with pytest.raises(ValueError, match="float32"):
        case.run(ops, case.pool.half())
    with pytest.raises(ValueError, match="apart"):
        case.run(ops, case.pool.mT.contiguous().mT)
    wide = make_case("gated_delta_rule", DECODES._replace(d=260))
    with pytest.raises(ValueError, match="256"):
        wide.run(ops, wide.pool)


@pytest.mark.slow
def test_all_kernels_compile_for_a_gpu() -> None:
    """The interpreter runs Python that the compiler refuses. In a process of its own: whether a kernel
    is interpreted is decided where it is decorated."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    told = subprocess.run(
        [sys.executable, "-m", "tests.backends.states.compile_kernels"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == [
        "clear_behind_kernel", "conv_chunks_kernel", "conv_tails_kernel", "delta_chunks_kernel",
        "delta_inputs_kernel", "delta_prepare_kernel", "delta_step_kernel", "gated_norm_kernel",
        "scan_chunks_kernel", "scan_step_kernel", "sigmoid_gate_kernel",
    ]  # fmt: skip
