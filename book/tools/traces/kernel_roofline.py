"""Where the kernels lie under the roof that was measured beside them, for the figure `kernel-roofline`.

Rates and ceilings are in book/evidence/kernels.json, which has the bytes of what moves and the
operations of what computes; here both are counted for each, from the shapes. A multiplication, an
addition, a division, an exponential and a root count one each; every input is read once and every
result written once. What only moves has no operations, so it is left out. No part takes part in this
trace.
"""

from collections.abc import Callable

from book.tools.evidence import load
from book.tools.kernels import NAMES, OURS
from book.tools.traces import Part, Trace
from yaie.bench.kernels.layer import DIM, HEADS, KV_HEADS, SIZE

LAB = None
Work = tuple[float, float]  # operations, bytes


def record(part: Part) -> Trace:
    """bandwidth and compute: the ceilings of the run, a second.
    kernels: name, size, flops and bytes, and of each way (triton, cuda, other) FLOP/s."""
    evidence = load("kernels")
    return {
        "bandwidth": round(evidence["ceilings"]["GB/s"]["rate"] * 1e9),
        "compute": round(evidence["ceilings"]["TFLOP/s"]["rate"] * 1e12),
        "kernels": [
            _kernel(operation, size, case)
            for operation, sizes in evidence["operations"].items()
            if operation in COUNTS
            for size, case in sizes.items()
        ],
    }


def _kernel(operation: str, size: str, case: dict) -> dict:
    flops, moved = COUNTS[operation](size)
    runs = {name: run for name, run in case["runs"].items() if "failed" not in run}
    work = moved if case["unit"] == "GB/s" else flops
    unit = 1e9 if case["unit"] == "GB/s" else 1e12
    rates = {name: runs[name]["rate"] for name in ("triton", "cuda") if name in runs}
    others = [run["rate"] for name, run in runs.items() if name not in OURS]
    if others:
        rates["other"] = max(others)
    return {
        "name": NAMES[operation],
        "size": case["label"],
        "flops": flops,
        "bytes": moved,
        "rates": {way: round(rate * unit * flops / work) for way, rate in rates.items()},
    }


def counted(operation: str, size: str) -> Work:
    """Operations and bytes of a case of `yaie bench kernels`, by the names in its file."""
    return COUNTS[operation](size)


def _numbers(size: str) -> list[int]:
    words = "".join(letter if letter.isdigit() else " " for letter in size)
    return [int(word) for word in words.split()]


def _each(flops: int, tensors: int) -> Callable[[str], Work]:
    """Of an operation on rows: each number takes `flops`, and `tensors` numbers are moved for it."""

    def count(size: str) -> Work:
        rows, width = _numbers(size)
        return flops * rows * width, tensors * rows * width * SIZE

    return count


def _rope(stored: int) -> Callable[[str], Work]:
    """A pair takes four multiplications and two additions. stored: heads that are only copied."""

    def count(size: str) -> Work:
        (tokens,) = _numbers(size)
        turned = tokens * (HEADS + KV_HEADS) * DIM
        return 3 * turned, 2 * SIZE * (turned + tokens * stored * DIM)

    return count


def _decode(size: str) -> Work:
    n, length, heads, kv_heads = _numbers(size)
    return 4 * n * length * heads * DIM, SIZE * n * (2 * length * kv_heads + 2 * heads) * DIM


def _prefill(size: str) -> Work:
    n, new, cached, heads, kv_heads = _numbers(size)
    pairs = n * (new * cached + new * (new + 1) / 2)
    moved = n * (2 * (cached + new) * kv_heads + 2 * new * heads) * DIM
    return 4 * pairs * DIM * heads, SIZE * moved


def _flash(products: int, queries: int, keys: int, floats: int) -> Callable[[str], Work]:
    """products: of queries and keys. queries, keys: tensors of their shape. floats: float32 a query."""

    def count(size: str) -> Work:
        heads, length, dim = _numbers(size)
        moved = (
            SIZE * length * dim * (queries * heads + keys * KV_HEADS) + 4 * floats * heads * length
        )
        return 2 * products * (length * length / 2) * dim * heads, moved

    return count


COUNTS: dict[str, Callable[[str], Work]] = {
    "rms_norm": _each(4, 2),  # square and add; times the inverse root, times the weight
    "fused_add_rms_norm": _each(5, 4),
    "silu_mul": _each(4, 3),  # exponential, addition, division; times up
    "rope": _rope(0),
    "rope_and_store": _rope(KV_HEADS),
    "flash_forward": _flash(2, queries=2, keys=2, floats=1),  # q, out; k, v; lse
    "flash_backward": _flash(
        5, queries=4, keys=4, floats=1
    ),  # q, out, their gradients; k, v and theirs
    "paged_decode": _decode,
    "paged_prefill": _prefill,
}
