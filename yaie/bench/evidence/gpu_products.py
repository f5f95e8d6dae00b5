"""Products of few rows, fused with what stands around them, beside the library's and single kernels.

    python -m yaie.bench.evidence.gpu_products [path]

Takes two minutes, on a GPU that does nothing else. The four products of a layer of two models in
bfloat16, each in turn on as many layers' weights as exceed the L2 cache, in a CUDA graph. Separately:
the norm of lab 9, `F.linear`, and its gate or residual. The limit is the time in which a copy would read
the weights.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.triton_ops import LayerKernels
from yaie.backends.gemm import FewRows
from yaie.backends.gemm.tiles import MOST_ROWS, pays
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.ceilings import ceilings
from yaie.bench.kernels.timing import measure
from yaie.bench.report import save
from yaie.core.gemm import PlainWeight

OUT = EVIDENCE / "gpu_products.json"
ROWS = (1, 2, 4, 8, 16, 32)
EPS = 1e-6
L2 = 2**28
"""Bytes of weights that are surely not found again in a cache."""
MODELS = {
    "qwen3-0.6b": {"hidden": 1024, "queries": 2048, "keys": 1024, "intermediate": 3072},
    "llama-3.1-8b": {"hidden": 4096, "queries": 4096, "keys": 1024, "intermediate": 14336},
}
KERNELS, FUSED = LayerKernels(), FewRows()
Run = Callable[[PlainWeight, Tensor, Tensor, Tensor], Any]


def qkv(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return F.linear(KERNELS.rms_norm(x, gain, EPS), *product)


def gate_up(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return KERNELS.silu_mul(F.linear(KERNELS.rms_norm(x, gain, EPS), *product))


def onto(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return residual.add_(F.linear(x, *product))


def fused_qkv(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return FUSED.after_norm(x, gain, EPS, product)


def fused_gate_up(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return FUSED.gated(x, gain, EPS, product)


def fused_onto(product: PlainWeight, x: Tensor, gain: Tensor, residual: Tensor) -> Any:
    return FUSED.onto(x, product, residual)


def products_of(hidden: int, queries: int, keys: int, intermediate: int) -> dict[str, Any]:
    """(out, in, separately, fused) by name."""
    return {
        "qkv": (queries + 2 * keys, hidden, qkv, fused_qkv),
        "output": (hidden, queries, onto, fused_onto),
        "gate_up": (2 * intermediate, hidden, gate_up, fused_gate_up),
        "down": (hidden, intermediate, onto, fused_onto),
    }


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def microseconds(run: Run, sets: list[tuple[PlainWeight, Tensor, Tensor, Tensor]]) -> float:
    return 1e3 * measure(run, sets).median


def main() -> None:
    torch.manual_seed(0)
    limits = ceilings()
    bytes_per_us = limits["GB/s"]["rate"] * 1e3
    models: dict[str, Any] = {}
    for model, sizes in MODELS.items():
        models[model] = {}
        for name, (n, k, separately, fused) in products_of(**sizes).items():
            layers = max(2, -(-L2 // (2 * n * k)))
            weights = [PlainWeight(numbers(n, k) / k**0.5, None) for _ in range(layers)]
            rows: dict[int, Any] = {}
            for count in ROWS:
                x, gain, residual = numbers(count, k), numbers(k), numbers(count, n)
                sets = [(weight, x, gain, residual) for weight in weights]
                rows[count] = {
                    "separately_us": microseconds(separately, sets),
                    "fused_us": microseconds(fused, sets),
                    "in_use": pays(count, sizes["hidden"]),
                }
            models[model][name] = {"limit_us": 2 * n * k / bytes_per_us, "rows": rows}
            print(model, name, models[model][name], flush=True)
    figures = {
        "command": "python -m yaie.bench.evidence.gpu_products",
        "limits": limits, "most_rows": MOST_ROWS, "models": models,
    }  # fmt: skip
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), figures)


if __name__ == "__main__":
    main()
