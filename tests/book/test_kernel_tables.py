"""The tables of kernels on the evidence page."""

from typing import Any

import pytest

from book.tools import kernels
from book.tools.evidence import EvidenceError


def run(rate: float, ms: float, share: float = 0.5) -> dict[str, Any]:
    return {"rate": rate, "ms": ms, "share": share}


CASES = {
    "rms_norm": {
        "8x4": {
            "label": "8 x 4",
            "unit": "GB/s",
            "runs": {
                "triton": run(3999.6, 0.1, 0.94),
                "cuda": {"failed": "wrong"},
                "torch": run(305, 1.0),
                "torch.compile": run(3204, 0.12),
                "F.rms_norm": run(2917, 0.14),
            },
        }
    },
    "gather": {"a": {"label": "a", "unit": "GB/s", "runs": {"cuda": run(4000, 0.1, 0.9)}}},
    "flash_forward": {"b": {"label": "b", "unit": "TFLOP/s", "runs": {}}},
    "sample_top_p": {
        "c": {"label": "c", "unit": "GB/s", "runs": {"triton": run(1, 0.2), "sort": run(1, 4.16)}}
    },
}


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "load", lambda name: {"operations": CASES})


def rows(unit: str) -> list[list[str]]:
    lines = kernels.render_kernels(unit).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_has_the_best_of_the_others_and_leaves_out_what_failed() -> None:
    head, _, norm, gather = rows("GB/s")
    assert head == [
        "GB/s",
        "size",
        "Triton",
        "CUDA C++",
        "PyTorch",
        "best of others",
        "of the ceiling",
    ]
    assert norm == ["RMSNorm", "8 × 4", "4,000", "", "305", "3,204 (torch.compile)", "94%"]
    assert gather == ["gather blocks", "a", "", "4,000", "", "", "90%"]


def test_arithmetic_and_drawing_have_tables_of_their_own() -> None:
    assert rows("TFLOP/s")[0] == ["TFLOP/s", "causal attention, forward, b"]
    head, _, top_p = rows("ms")
    assert head == ["milliseconds", "size", "Triton", "PyTorch", "best of others"]
    assert top_p == ["temperature and top-p", "c", "0.200", "", "4.160 (sort)"]


def test_another_unit_is_a_fault() -> None:
    with pytest.raises(EvidenceError, match="GB/s"):
        kernels.render_kernels("apples")


def test_every_operation_that_is_measured_has_a_name_here() -> None:
    from yaie.bench.kernels.suite import choose

    assert {case.operation for case in choose([])} <= set(kernels.NAMES)


def test_attention_has_a_row_for_each_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a library that was not there, or that failed, leaves its cell empty."""
    label = "64 x 4,096, 32 heads on 8"
    runs = {
        "triton": run(2773, 0.39, 0.92),
        "flashinfer fa2": run(2981, 0.36),
        "flashinfer fa3": run(929, 1.16),
        "flash-attn 3": {"failed": "ImportError"},
        "sdpa contiguous": run(3071, 0.35),
    }
    decode = {"paged_decode": {"a": {"label": label, "unit": "GB/s", "runs": runs}}}
    monkeypatch.setattr(kernels, "load", lambda name: {"operations": decode})
    head, _, *told = rows("decode")
    assert head == ["GB/s", "64 × 4,096, 32 heads on 8"]
    assert told == [
        ["Triton", "2,773"],
        ["CUDA C++", ""],
        ["PyTorch", ""],
        ["FlashInfer, fa2", "2,981"],
        ["FlashInfer, fa3", "929"],
        ["FlashAttention-3", ""],
        ["PyTorch, in one piece", "3,071"],
        ["cuDNN, in one piece", ""],
        ["Triton, of the ceiling", "92%"],
    ]
    assert rows("GB/s")[2:] == []


def test_every_library_of_the_tables_is_one_that_is_timed() -> None:
    recorded = kernels_of_the_newest_run()
    for table in kernels.LIBRARIES.values():
        assert set(table.values()) <= recorded


def kernels_of_the_newest_run() -> set[str]:
    from book.tools.evidence import load

    operations = load("kernels")["operations"].values()
    return {name for sizes in operations for case in sizes.values() for name in case["runs"]}
