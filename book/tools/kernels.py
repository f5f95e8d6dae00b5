"""The tables of kernels on the evidence page, from what `yaie bench kernels --json` wrote."""

from typing import Any

from book.tools.evidence import EvidenceError, load

Case = tuple[str, dict[str, Any]]
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
FLASH = {
    "FlashInfer, fa2": "flashinfer fa2",
    "FlashInfer, fa3": "flashinfer fa3",
    "FlashAttention-3": "flash-attn 3",
}
LIBRARIES: dict[str, dict[str, str]] = {
    "decode": FLASH
    | {"PyTorch, in one piece": "sdpa contiguous", "cuDNN, in one piece": "sdpa cudnn contiguous"},
    "TFLOP/s": FLASH | {"cuDNN": "sdpa cudnn", "FlashAttention-2": "sdpa flash"},
}
"""By table, other libraries' attention: heading, and name of the run. These tables have a row for each
library, since there are more of them than sizes."""
UNITS = {"GB/s": "GB/s", "decode": "GB/s", "TFLOP/s": "TFLOP/s", "ms": "milliseconds"}
"""By table, what it is told in."""


def render_kernels(table: str) -> str:
    """A table: operations told in GB/s, TFLOP/s or ms, or paged decode. Raises EvidenceError."""
    if table not in UNITS:
        raise EvidenceError(f"{{{{#kernels}}}} needs one of {', '.join(UNITS)}, not {table!r}")
    cases = [
        (operation, case)
        for operation, sizes in load("kernels")["operations"].items()
        for case in sizes.values()
        if _table(operation, case) == table
    ]
    if table in LIBRARIES:
        return _lines(*_by_library(cases, table))
    columns = [UNITS[table], "size", *(OURS[name] for name in _ours(table)), "best of others"]
    columns += [] if table == "ms" else ["of the ceiling"]
    return _lines(columns, [_row(operation, case, table) for operation, case in cases])


def _by_library(cases: list[Case], table: str) -> tuple[list[str], list[list[str]]]:
    """Columns are sizes, rows are who computes; last, Triton's share of the ceiling."""
    runs = [_ran(case) for _, case in cases]
    names = {heading: run for run, heading in OURS.items()} | LIBRARIES[table]
    rows = [
        [heading, *(_cell(ran[name], table) if name in ran else "" for ran in runs)]
        for heading, name in names.items()
    ]
    rows.append(["Triton, of the ceiling", *(_share(ran) for ran in runs)])
    sizes = [
        _label(case) if table == "decode" else f"{NAMES[operation]}, {_label(case)}"
        for operation, case in cases
    ]
    return [UNITS[table], *sizes], rows


def _ours(table: str) -> list[str]:
    """Nothing draws in CUDA C++."""
    return [name for name in OURS if table != "ms" or name != "cuda"]


def _table(operation: str, case: dict[str, Any]) -> str:
    """A filter of the sampler reads its logits as often as it likes: time is what counts."""
    if operation == "paged_decode":
        return "decode"
    return "ms" if operation.startswith("sample") else str(case["unit"])


def _ran(case: dict[str, Any]) -> dict[str, Any]:
    return {name: run for name, run in case["runs"].items() if "failed" not in run}


def _label(case: dict[str, Any]) -> str:
    return str(case["label"]).replace(" x ", " × ")


def _share(runs: dict[str, Any]) -> str:
    """Of the ceiling: Triton's, or where it has no kernel that of CUDA C++."""
    kernel = next((name for name in ("triton", "cuda") if name in runs), None)
    return f"{runs[kernel]['share']:.0%}" if kernel else ""


def _row(operation: str, case: dict[str, Any], table: str) -> list[str]:
    runs = _ran(case)
    ours = [_cell(runs[name], table) if name in runs else "" for name in _ours(table)]
    row = [NAMES[operation], _label(case), *ours, _best(runs, table)]
    return row if table == "ms" else [*row, _share(runs)]


def _best(runs: dict[str, Any], table: str) -> str:
    """The fastest of the others, and who that is."""
    others = [name for name in runs if name not in OURS]
    best = min(others, key=lambda name: runs[name]["ms"], default=None)
    return f"{_cell(runs[best], table)} ({best})" if best else ""


def _cell(run: dict[str, Any], table: str) -> str:
    return f"{run['ms']:.3f}" if table == "ms" else f"{run['rate']:,.0f}"


def _lines(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))
