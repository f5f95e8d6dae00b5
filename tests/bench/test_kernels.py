"""`yaie bench kernels`, as far as it can be tried without a GPU: who is compared, what is checked."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import Yaie
from yaie.bench.kernels import drawing, flash, layer, memory, paged, suite
from yaie.bench.kernels.case import Case, Problem
from yaie.parts import Parts, load_parts

PARTS = load_parts("none")
NOT_HERE = (
    "torch.compile",
    "flashinfer",
    "flashinfer fa2",
    "flashinfer fa3",
    "flash-attn 3",
    "sdpa cudnn",
    "sdpa cudnn contiguous",
    "cuda",
)
SMALL: dict[str, Callable[[Parts], Problem]] = {
    "norm": lambda parts: layer._norm(16, parts),
    "add_norm": lambda parts: layer._add_norm(16, parts),
    "silu": lambda parts: layer._silu(2, parts),
    "rope": lambda parts: layer._rope(32, parts),
    "rope_and_store": lambda parts: layer._rope_and_store(32, parts),
    "flash_forward": lambda parts: flash._forward(128, parts),
    "flash_backward": lambda parts: flash._backward(64, parts),
    "decode": lambda parts: paged._decode(3, 40, 4, 2, parts),
    "prefill": lambda parts: paged._prefill(2, 16, 24, 4, 2, parts),
    "store": lambda parts: memory._store(32, parts),
    "copy": memory._copy,
    "greedy": lambda parts: drawing._draw(4, 0.0, {}, parts),
    "top_p": lambda parts: drawing._draw(4, 0.8, {"top_p": 0.9}, parts),
    "top_k": lambda parts: drawing._draw(4, 0.8, {"top_k": 5}, parts),
    "min_p": lambda parts: drawing._draw(4, 0.8, {"min_p": 0.05}, parts),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layer, paged, memory):
        monkeypatch.setattr(module, "copies_beyond_l2", lambda _: 1)
    for module, name, value in (
        (flash, "HEADS", 4), (flash, "KV_HEADS", 2), (flash, "CHECKED", 16), (layer, "CHECKED", 8),
        (drawing, "VOCAB", 500), (memory, "MOVED", 4), (memory, "LAYERS", 2),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def test_without_a_gpu_it_says_so(yaie: Yaie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = yaie("bench", "kernels")
    assert ran.code == 2
    assert "measured on a GPU" in ran.err


def test_an_operation_that_does_not_exist_is_refused_with_the_list(yaie: Yaie) -> None:
    ran = yaie("bench", "kernels", "--operation", "rmsnorm")
    assert ran.code == 2
    assert "rms_norm" in ran.err
    assert "paged_decode" in ran.err


def test_every_case_has_a_name_that_a_page_can_quote() -> None:
    cases = suite.choose([])
    assert len({(case.operation, case.size) for case in cases}) == len(cases)
    for case in cases:
        assert not set(case.operation + case.size) & set(". "), case
        assert case.work > 0
        assert case.unit in ("GB/s", "TFLOP/s")


@pytest.mark.parametrize("name", SMALL)
def test_runs_agree_with_float64(name: str) -> None:
    """Triton's in the interpreter. Here it is the check that is tested, with the one below."""
    pytest.importorskip("triton")
    problem = SMALL[name](PARTS)
    for run, make in problem.runs.items():
        if run not in NOT_HERE:
            assert suite._error(problem, make()) <= problem.tolerance, run


@pytest.mark.parametrize("name", ["norm", "add_norm", "rope", "flash_forward", "decode", "store"])
def test_a_run_that_is_wrong_is_not_timed(name: str) -> None:
    pytest.importorskip("triton")
    problem = SMALL[name](PARTS)
    right = problem.runs["triton" if name in ("flash_forward", "decode") else "torch"]()

    def wrong(*arguments: object) -> object:
        result = right(*arguments)
        last = result[-1] if isinstance(result, tuple) else result
        last.mul_(1.1)
        return result

    case = Case(name, "small", "small", "GB/s", 1.0, lambda _: problem)
    assert suite._one(case, problem, wrong)["failed"].startswith("wrong: error")


def test_a_token_outside_of_the_nucleus_is_an_error() -> None:
    problem = SMALL["top_p"](PARTS)
    assert problem.check is not None
    least = problem.sets[0][0].argmin(-1)
    assert problem.check(least, problem.sets[0]) == 1.0


def test_a_kernel_that_fails_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Callable[..., object]:
        raise RuntimeError("no such instruction")

    problem = SMALL["norm"](PARTS)
    problem.runs = {"triton": broken, "torch": problem.runs["torch"]}
    monkeypatch.setattr(suite.torch, "device", lambda _: torch.no_grad())
    monkeypatch.setattr(suite.torch.cuda, "empty_cache", lambda: None)
    timing = suite.measure
    monkeypatch.setattr(suite, "measure", lambda *_, **__: _Timing())
    case = Case("norm", "small", "small", "GB/s", 1e6, lambda _: problem)
    result = suite.measured(case, PARTS, [], {"GB/s": {"rate": 4000.0}})
    assert result["runs"]["triton"] == {"failed": "RuntimeError: no such instruction"}
    assert result["runs"]["torch"]["share"] == pytest.approx(1 / 2 / 4000)
    assert callable(timing)


class _Timing:
    median = 2.0

    def as_json(self) -> dict[str, float]:
        return {"ms": 2.0}


@pytest.mark.nightly
def test_it_needs_nothing_of_the_server() -> None:
    """A machine with a GPU may have PyTorch and Triton, and nothing that serves HTTP."""
    program = (
        "import sys\n"
        "for name in ('fastapi', 'pydantic', 'starlette', 'uvicorn', 'openai'):\n"
        "    sys.modules[name] = None\n"
        "import yaie.cli.main, yaie.bench.kernels\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("filters", "temperature", "allowed"),
    [
        ({}, 0.0, [3]),
        ({"top_k": 2}, 0.5, [3, 2]),
        ({"min_p": 0.2}, 1.0, [3, 2, 1]),
        ({"top_p": 0.7}, 1.0, [3, 2]),
    ],
)
def test_a_token_is_outside_if_the_filters_exclude_it(
    filters: dict[str, float],
    temperature: float,
    allowed: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "VOCAB", 4)
    logits = torch.tensor(
        [[0.08, 0.12, 0.3, 0.5]]
    ).log()  # 0.12 is 0.24 of the largest, 0.08 is 0.16
    outside = [
        drawing._share_outside(
            torch.tensor([token]), (logits,), temperature=temperature, filters=filters
        )
        for token in range(4)
    ]
    assert outside == [float(token not in allowed) for token in range(4)]


def moved(arguments: tuple[Any, ...], results: Any) -> int:
    """Bytes of the tensors that go in and come out, each once."""
    values = [*arguments, *(results if isinstance(results, tuple) else (results,))]
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return sum(tensor.nbytes for tensor in tensors if tensor.dtype == torch.bfloat16)


def test_the_bytes_of_an_operation_are_those_of_its_tensors() -> None:
    cases = {(case.operation, case.size): case for case in layer.cases()}
    rows = next(int(size.partition("x")[0]) for name, size in cases if name == "silu_mul")
    for name in ("silu_mul", "rms_norm"):
        case = next(case for (operation, _), case in cases.items() if operation == name)
        problem = layer._silu(2, PARTS) if name == "silu_mul" else layer._norm(2, PARTS)
        arguments = problem.sets[0]
        own = moved(arguments, problem.runs["torch"]()(*arguments))
        weights = 0 if name == "silu_mul" else 4096 * 2  # read once for all rows: not counted
        assert case.work == (own - weights) / 2 * rows, name


def test_each_operation_of_a_layer_has_its_own_goal() -> None:
    goals = [case.goal for case in layer.cases() if case.size.startswith("8192") and case.goal]
    assert tuple(goals) == layer.GOALS


def test_a_decode_reads_every_key_and_value_once_and_its_queries_and_writes_as_much() -> None:
    (n, length, heads, kv_heads, _), case = paged.DECODES[0], paged.cases()[0]
    cached = 2 * n * length * kv_heads * paged.DIM
    assert case.work == 2 * (cached + 2 * n * heads * paged.DIM)  # bfloat16: two bytes


def test_the_driver_is_asked_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 580.1\necho 580.1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert suite._driver() == "580.1"
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert suite._driver() is None
