"""Products on weights of four and of eight bits beside bfloat16's: the four of a layer of an 8B model.

    python -m yaie.bench.evidence.gpu_int4 [path] [--rows 1 8] [--tiles]

Two minutes, on a GPU that does nothing else. Each product is measured in a CUDA graph, in turn on as
many layers' weights as exceed the L2 cache, and checked against float64. `--tiles` tries how few_rows.cu
cuts the work up instead.

    bfloat16     the library's product
    lab          lab 19's kernel, on weights of four bits, and the engine's in Triton and in CUDA C++:
    triton       packed.py, unpacked.py
    tiled        the engine's on the words of tiled.py
    streamed     by streamed.cu alone, whatever the rows
    fp8          the engine's on weights in FP8
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
from yaie.backends.gemm.packed import MOST_ROWS, PackedFewRows
from yaie.backends.gemm.streamed import StreamedGemm
from yaie.backends.gemm.tiled import TiledWeight, tiled
from yaie.backends.gemm.unpacked import product_of_many
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.case import copies_beyond_l2
from yaie.bench.kernels.ceilings import ceilings
from yaie.bench.kernels.timing import measure
from yaie.bench.report import save
from yaie.core.quantized import Fp8Weight, Int4Weight, LoadedInt4Weight
from yaie.models.schemes.words import EIGHTS

OUT = EVIDENCE / "gpu_int4.json"
ROWS = (1, 5, 8, 16, 32, 64, 128, 256)
PRODUCTS = {
    "qkv": (6144, 4096), "output": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336),
}  # fmt: skip
GROUP_SIZE = 32
TOLERANCE = 0.02
"""Of the error's norm to the result's: bfloat16's roundings."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    parser.add_argument("--tiles", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    found: dict[str, Any] = {"command": "python -m yaie.bench.evidence.gpu_int4"}
    if args.tiles:
        found |= {name: tiles(*shape) for name, shape in PRODUCTS.items()}
        found["best"] = best({name: found[name] for name in PRODUCTS})
    else:
        found["ceilings"] = ceilings()
        found["rows"] = {str(rows): layer(rows) for rows in args.rows}
    save(str(args.path), found)


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


def in_fp8(plain: Tensor) -> Fp8Weight:
    scales = plain.float().abs().amax(dim=1) / 448
    return Fp8Weight((plain.float() / scales[:, None]).to(torch.float8_e4m3fn), scales)


def layer(rows: int) -> dict[str, Any]:
    """Microseconds of each product and of all four, by what multiplies. ratio: bfloat16's to each."""
    found: dict[str, Any] = {}
    streamed = StreamedGemm(torch.device("cuda"))
    for name, (n, k) in PRODUCTS.items():
        plain, packed = weights(n, k)
        arranged = [tiled(one) for one in packed]
        x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        runs: dict[str, tuple[Callable[..., Tensor], list[Any]]] = {
            "bfloat16": (F.linear, plain),
            "lab": (fused_int4().product, packed),
            "triton": (PackedFewRows().multiply if rows <= MOST_ROWS else product_of_many, packed),
            "tiled": (streamed.product, arranged),
            "streamed": (partial(in_line, streamed), arranged),
            "fp8": (streamed.product, [in_fp8(one) for one in plain]),
        }
        found[name] = {label: us(run, x, sets) for label, (run, sets) in runs.items()}
        expected = exact(x, packed[0])
        for label in ("lab", "triton", "tiled", "streamed"):
            run, sets = runs[label]
            check(run(x, sets[0]), expected)
        codes = runs["fp8"][1][0]
        wide = codes.codes.double() * codes.scales.double()[:, None]
        check(streamed.product(x, codes), x.double() @ wide.T)
    labels = found["qkv"]
    sums = {label: sum(one[label] for one in found.values()) for label in labels}
    ratio = {label: sums["bfloat16"] / sums[label] for label in labels}
    found["layer"] = {**sums, "ratio": ratio}
    print(rows, {key: round(value, 2) for key, value in sums.items()}, flush=True)
    return found


def in_line(products: StreamedGemm, x: Tensor, weight: TiledWeight) -> Tensor:
    out = x.new_empty(len(x), weight.out_features)
    for some, into in zip(x.split(MOST_ROWS), out.split(MOST_ROWS), strict=True):
        products.in_line(some, weight, into)
    return out


def tiles(n: int, k: int) -> list[dict[str, Any]]:
    """Every way to cut the inputs of a product of few rows, fastest first."""
    packed = [tiled(random_weight(n, k)) for _ in range(copies_beyond_l2(n * k // 2))]
    products, found = StreamedGemm(torch.device("cuda")), []

    def run(x: Tensor, weight: TiledWeight, parts: int) -> Tensor:
        out = x.new_empty(len(x), n)
        products.in_parts(x, weight, out, parts=parts)
        return out

    for rows in (1, 8, 16):
        x = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
        own = [
            {"rows": rows, "parts": parts, "us": us(partial(run, parts=parts), x, packed)}
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
