"""The tables of kernels on the evidence page, from what `yaie bench kernels --json` wrote."""

from collections.abc import Iterable
from typing import Any

from book.tools.evidence import EvidenceError, load

STAR = " \\*"
OURS = {"triton": "Triton", "cuda": "CUDA C++", "torch": "PyTorch"}
NAMES = {
    "rms_norm": "RMSNorm",
    "fused_add_rms_norm": "add and RMSNorm",
    "silu_mul": "SiLU-mul",
    "rope": "RoPE",
    "rope_and_store": "RoPE and store",
    "store_kv": "store K and V",
    "gather": "gather blocks",
    "copy_blocks": "copy blocks",
    "prefix_match": "longest common prefix",
    "paged_decode": "paged decode",
    "paged_prefill": "paged prefill",
    "flash_forward": "causal attention, forward",
    "flash_backward": "causal attention, backward",
    "sample_greedy": "largest logit",
    "sample_temperature": "temperature",
    "sample_top_p": "temperature and top-p",
    "sample_top_k": "temperature and top-k",
    "sample_min_p": "temperature and min-p",
}
NEWER = {("paged_decode", "cuda"): ("cuda_attention", "decode")}
"""By operation and backend, the evidence of a later run, after the kernel had been written anew: file
and key, below which the sizes have the same names. An operation has one figure, the newest."""
UNITS = {"GB/s": "GB/s", "TFLOP/s": "TFLOP/s", "ms": "milliseconds"}


def render_kernels(unit: str) -> str:
    """A table of all operations that are told in a unit: GB/s, TFLOP/s or ms. Raises EvidenceError."""
    if unit not in UNITS:
        raise EvidenceError(f"{{{{#kernels}}}} needs one of {', '.join(UNITS)}, not {unit!r}")
    operations = load("kernels")["operations"]
    columns = [UNITS[unit], "size", *(OURS[name] for name in _ours(unit)), "best of others"]
    columns += [] if unit == "ms" else ["of the ceiling"]
    rows = [
        _row(operation, case, unit)
        for operation, sizes in operations.items()
        for case in sizes.values()
        if _unit(operation, case) == unit
    ]
    table = "\n".join([_line(columns), _line(["---"] * len(columns)), *rows])
    return f"{table}\n{_notes(table)}" if STAR in table else table


def _ours(unit: str) -> list[str]:
    """Nothing draws in CUDA C++."""
    return [name for name in OURS if unit != "ms" or name != "cuda"]


def _unit(operation: str, case: dict[str, Any]) -> str:
    """A filter of the sampler reads its logits as often as it likes: time is what counts."""
    return "ms" if operation.startswith("sample") else str(case["unit"])


def _row(operation: str, case: dict[str, Any], unit: str) -> str:
    runs = {name: run for name, run in case["runs"].items() if "failed" not in run}
    others = {name: run for name, run in runs.items() if name not in OURS}
    cells = [
        _newest(operation, name, case, runs[name], unit) if name in runs else ""
        for name in _ours(unit)
    ]
    best = min(others, key=lambda name: others[name]["ms"], default=None)
    cells.append(f"{_cell(others[best], unit)} ({best})" if best else "")
    if unit != "ms":
        kernel = next((name for name in ("triton", "cuda") if name in runs), None)
        cells.append(f"{runs[kernel]['share']:.0%}" if kernel else "")
    return _line([NAMES[operation], str(case["label"]).replace(" x ", " × "), *cells])


def _newest(
    operation: str, backend: str, case: dict[str, Any], run: dict[str, Any], unit: str
) -> str:
    """The table's own figure, or with a star that of a later run."""
    later = later_rate(operation, backend, case) if unit == "GB/s" else None
    return _cell(run, unit) if later is None else f"{later:,.0f}{STAR}"


def later_rate(operation: str, backend: str, case: dict[str, Any]) -> float | None:
    """GB/s of a kernel that was written anew after kernels.json was measured, if this one was.

    Raises EvidenceError if the later run lacks the size.
    """
    if (operation, backend) not in NEWER:
        return None
    name, key = NEWER[operation, backend]
    size = str(case["label"]).partition(", ")[0].replace(",", "")
    later = load(name)[key].get(size)
    if later is None:
        raise EvidenceError(f"{name}:{key} has no size {size!r}, which the table of kernels needs")
    return float(later["tuned"]["gbs"])


def _notes(table: str) -> str:
    """What the star says."""
    says = [
        f"{STAR.strip()} Measured after the rest, on {load(name)['date']}: the kernel was written anew. "
        f"A copy reached {load(name)['ceilings']['copy_gbs']:,.0f} GB/s in that run."
        for name in dict.fromkeys(name for name, _ in NEWER.values())
    ]
    return "\n" + "\n".join(says)


def _cell(run: dict[str, Any], unit: str) -> str:
    return f"{run['ms']:.3f}" if unit == "ms" else f"{run['rate']:,.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
