"""How near each kernel comes to its ceiling, for the figure `kernel-shares`.

Rates and ceilings are in book/evidence/kernels.json. No part takes part in this trace.
"""

from book.tools.evidence import load
from book.tools.kernels import NAMES, OURS
from book.tools.traces import Part, Trace

LAB = None
UNITS = ("GB/s", "TFLOP/s")


def record(part: Part) -> Trace:
    """units: their ceilings, and kernels: name, size, rates of ours and of the best other, and whose."""
    evidence = load("kernels")
    ceilings = {unit: round(evidence["ceilings"][unit]["rate"], 1) for unit in UNITS}
    kernels: dict[str, list] = {unit: [] for unit in UNITS}
    for operation, sizes in evidence["operations"].items():
        if operation.startswith("sample"):
            continue  # a filter reads its logits as often as it likes: bytes say nothing of it
        for case in sizes.values():
            kernels[case["unit"]].append(_kernel(operation, case))
    return {
        "units": {unit: {"ceiling": ceilings[unit], "kernels": kernels[unit]} for unit in UNITS}
    }


def _kernel(operation: str, case: dict) -> dict:
    runs = {name: run for name, run in case["runs"].items() if "failed" not in run}
    others = {name: run["rate"] for name, run in runs.items() if name not in OURS}
    ours = {name: round(runs[name]["rate"], 1) for name in ("triton", "cuda") if name in runs}
    kernel = {"name": NAMES[operation], "size": case["label"], **ours}
    best = max(others, key=lambda name: others[name], default=None)
    return kernel if best is None else {**kernel, "other": round(others[best], 1), "whose": best}
