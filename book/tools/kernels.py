"""The tables of kernels on the evidence page, from what `yaie bench kernels --json` wrote."""

from collections.abc import Iterable
from typing import Any

from book.tools.evidence import EvidenceError, load

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
Columns = dict[str, tuple[str, ...]]
FLASHINFER: Columns = {"FlashInfer, fa2 / fa3": ("flashinfer fa2", "flashinfer fa3")}
FA3: Columns = {"FlashAttention-3": ("flash-attn 3",)}
LIBRARIES: dict[str, Columns] = {
    "decode": FLASHINFER
    | FA3
    | {"in one piece, PyTorch / cuDNN": ("sdpa contiguous", "sdpa cudnn contiguous")},
    "TFLOP/s": FLASHINFER | FA3 | {"cuDNN": ("sdpa cudnn",), "FlashAttention-2": ("sdpa flash",)},
}
"""By table, the columns of other libraries' attention: heading, and the runs whose rates stand in it."""
UNITS = {"GB/s": "GB/s", "decode": "GB/s", "TFLOP/s": "TFLOP/s", "ms": "milliseconds"}
"""By table, what it is told in."""


def render_kernels(table: str) -> str:
    """A table: operations told in GB/s, TFLOP/s or ms, or paged decode. Raises EvidenceError."""
    if table not in UNITS:
        raise EvidenceError(f"{{{{#kernels}}}} needs one of {', '.join(UNITS)}, not {table!r}")
    operations = load("kernels")["operations"]
    others = list(LIBRARIES[table]) if table in LIBRARIES else ["best of others"]
    columns = [UNITS[table], "size", *(OURS[name] for name in _ours(table)), *others]
    columns += [] if table == "ms" else ["of the ceiling"]
    rows = [
        _row(operation, case, table)
        for operation, sizes in operations.items()
        for case in sizes.values()
        if _table(operation, case) == table
    ]
    return "\n".join([_line(columns), _line(["---"] * len(columns)), *rows])


def _ours(table: str) -> list[str]:
    """Nothing draws in CUDA C++."""
    return [name for name in OURS if table != "ms" or name != "cuda"]


def _table(operation: str, case: dict[str, Any]) -> str:
    """A filter of the sampler reads its logits as often as it likes: time is what counts."""
    if operation == "paged_decode":
        return "decode"
    return "ms" if operation.startswith("sample") else str(case["unit"])


def _row(operation: str, case: dict[str, Any], table: str) -> str:
    runs = {name: run for name, run in case["runs"].items() if "failed" not in run}
    cells = [_cell(runs[name], table) if name in runs else "" for name in _ours(table)]
    if table in LIBRARIES:
        cells += [
            " / ".join(_cell(runs[name], table) for name in names if name in runs)
            for names in LIBRARIES[table].values()
        ]
    else:
        cells.append(_best(runs, table))
    if table != "ms":
        kernel = next((name for name in ("triton", "cuda") if name in runs), None)
        cells.append(f"{runs[kernel]['share']:.0%}" if kernel else "")
    return _line([NAMES[operation], str(case["label"]).replace(" x ", " × "), *cells])


def _best(runs: dict[str, Any], table: str) -> str:
    """The fastest of the others, and who that is."""
    others = [name for name in runs if name not in OURS]
    best = min(others, key=lambda name: runs[name]["ms"], default=None)
    return f"{_cell(runs[best], table)} ({best})" if best else ""


def _cell(run: dict[str, Any], table: str) -> str:
    return f"{run['ms']:.3f}" if table == "ms" else f"{run['rate']:,.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
