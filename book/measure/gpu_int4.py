"""Products on weights of four bits beside bfloat16's, over the four products of a layer of an 8B model.

    python -m book.measure.gpu_int4 [path] [--tiles]

Two minutes, on a GPU that does nothing else; `--tiles` tries how the work is cut up instead. Each
product is measured in a CUDA graph, in turn on as many layers' weights as exceed the L2 cache, and
checked against float64. The limit is the time in which a copy would read the weights.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.quantization import Int4, fused_int4
from yaie.backends.products.packed import MOST_ROWS, PackedFewRows
from yaie.backends.products.tiled import TiledProducts, tiled
from yaie.backends.products.unpacked import product_of_many
from yaie.bench.kernels.case import copies_beyond_l2
from yaie.bench.kernels.ceilings import ceilings
from yaie.bench.kernels.timing import measure
from yaie.bench.report import save
from yaie.core.quantized import Int4Weight, LoadedInt4Weight
from yaie.models.schemes.words import EIGHTS

OUT = Path(__file__).parents[1] / "evidence/gpu_int4.json"
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PRODUCTS = {
    "qkv": (6144, 4096), "output": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336),
}  # fmt: skip
GROUP_SIZE = 32
TOLERANCE = 0.02
"""Of the error's norm to the result's: bfloat16's roundings."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--tiles", nargs="*", choices=list(PRODUCTS), metavar="PRODUCT")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.tiles is not None:
        found: dict[str, Any] = {name: tiles(*PRODUCTS[name]) for name in args.tiles or PRODUCTS}
        found["best"] = best(found)
    else:
        found = {"ceilings": ceilings(), "rows": {str(rows): layer(rows) for rows in ROWS}}
    save(str(args.path), {"command": "python -m book.measure.gpu_int4", **found})


def weights(n: int, k: int) -> tuple[list[Tensor], list[Int4Weight]]:
    """As many as exceed the cache, in bfloat16 and in four bits."""
    plain = [
        torch.randn(n, k, dtype=torch.bfloat16, device="cuda") / k**0.5
        for _ in range(copies_beyond_l2(n * k // 2))
    ]
    return plain, [random_weight(n, k) for _ in plain]


def random_weight(n: int, k: int) -> Int4Weight:
    def words(*shape: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device="cuda")

    scales = torch.rand(k // GROUP_SIZE, n, dtype=torch.float16, device="cuda") / k**0.5
    zeros = torch.full((k // GROUP_SIZE, n // 8), EIGHTS, dtype=torch.int32, device="cuda")
    return LoadedInt4Weight(words(k // 8, n), scales, zeros, GROUP_SIZE, is_even=True)


def layer(rows: int) -> dict[str, Any]:
    """Microseconds of each product: bfloat16, lab 19's kernel, and the engine's two."""
    found: dict[str, Any] = {}
    for name, (n, k) in PRODUCTS.items():
        plain, packed = weights(n, k)
        x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        runs: dict[str, tuple[Callable[..., Tensor], list[Any]]] = {
            "bfloat16": (F.linear, plain), "lab": (fused_int4().product, packed),
        }  # fmt: skip
        if rows <= MOST_ROWS:
            runs["triton"] = (PackedFewRows().multiply, packed)
        else:
            runs["triton"] = (product_of_many, packed)
        arranged = TiledProducts(torch.device("cuda"))
        runs["tiled"] = (arranged.product, [tiled(one) for one in packed])
        found[name] = {label: us(run, x, sets) for label, (run, sets) in runs.items()}
        expected = exact(x, packed[0])
        for label in found[name].keys() - {"bfloat16"}:
            run, sets = runs[label]
            check(run(x, sets[0]), expected)
    labels = found["qkv"]
    sums = {label: sum(one[label] for one in found.values()) for label in labels}
    found["layer"] = {**sums, "ratio": sums["bfloat16"] / sums["tiled"]}
    print(rows, {key: round(value, 2) for key, value in found["layer"].items()}, flush=True)
    return found


def tiles(n: int, k: int) -> list[dict[str, Any]]:
    """Every way to cut the inputs of a product of few rows, fastest first."""
    packed = [tiled(random_weight(n, k)) for _ in range(copies_beyond_l2(n * k // 2))]
    few, found = TiledProducts(torch.device("cuda")), []
    for rows in (1, 8, 16, 32):
        x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        own = [
            {"rows": rows, "parts": parts, "us": us(partial(few.few_rows, parts=parts), x, packed)}
            for parts in (1, 2, 3, 4, 6, 8)
        ]
        own.sort(key=lambda one: one["us"])
        print(n, k, *own, sep="\n  ", flush=True)
        found += own
    return found


def best(found: dict[str, Any]) -> dict[str, Any]:
    """By rows the least microseconds of each product, and of a layer of them."""
    chosen: dict[str, Any] = {}
    for name, tries in found.items():
        for one in tries:
            own = chosen.setdefault(str(one["rows"]), {})
            own[name] = min(own.get(name, one["us"]), one["us"])
    return {rows: {**own, "layer": sum(own.values())} for rows, own in chosen.items()}


def us(run: Callable[..., Tensor], x: Tensor, sets: list[Any]) -> float:
    return 1e3 * measure(run, [(x, one) for one in sets]).median


def exact(x: Tensor, weight: Int4Weight) -> Tensor:
    return x.double() @ Int4().dequantize(weight).double().T


def check(y: Tensor, expected: Tensor) -> None:
    error = ((y.double() - expected).norm() / expected.norm()).item()
    assert error < TOLERANCE, f"error {error:.3g}"


if __name__ == "__main__":
    main()
