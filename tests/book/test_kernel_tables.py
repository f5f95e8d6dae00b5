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
    assert rows("TFLOP/s")[2] == ["causal attention, forward", "b", "", "", "", "", ""]
    head, _, top_p = rows("ms")
    assert head == ["milliseconds", "size", "Triton", "PyTorch", "best of others"]
    assert top_p == ["temperature and top-p", "c", "0.200", "", "4.160 (sort)"]


def test_another_unit_is_a_fault() -> None:
    with pytest.raises(EvidenceError, match="GB/s"):
        kernels.render_kernels("apples")


def test_every_operation_that_is_measured_has_a_name_here() -> None:
    from yaie.bench.kernels.suite import choose

    assert {case.operation for case in choose([])} <= set(kernels.NAMES)


LATER = {
    "date": "2026-11-23",
    "ceilings": {"copy_gbs": 3851.1},
    "decode": {"64 x 4096": {"tuned": {"gbs": 3766.8}}},
}


def decode(label: str) -> dict[str, Any]:
    return {
        "label": label,
        "unit": "GB/s",
        "runs": {"triton": run(4287, 0.2), "cuda": run(2355, 0.4)},
    }


def test_an_operation_has_one_figure_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"operations": {"paged_decode": {"a": decode("64 x 4,096, 32 heads on 8")}}}
    monkeypatch.setattr(kernels, "load", lambda name: table if name == "kernels" else LATER)
    made = kernels.render_kernels("GB/s")
    assert "3,767 \\*" in made
    assert "2,355" not in made
    assert made.splitlines()[-1].startswith("\\* Measured after the rest, on 2026-11-23")


def test_a_size_that_the_later_run_lacks_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"operations": {"paged_decode": {"a": decode("8 x 512, 32 heads on 8")}}}
    monkeypatch.setattr(kernels, "load", lambda name: table if name == "kernels" else LATER)
    with pytest.raises(EvidenceError, match="no size '8 x 512'"):
        kernels.render_kernels("GB/s")
