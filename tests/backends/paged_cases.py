"""Problems of paged attention and of a layer's rows in numpy, solved in float64 beside the C++ library.

Without PyTorch, so that the library can be run under the sanitizers, which see what is read beyond an
array of numpy's: python -m tests.backends.paged_cases FLAGS COUNT [short]
"""

import ctypes
import random
import sys
from ctypes import byref
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

from tests.models.gguf.random_blocks import random_bytes
from yaie.backends.cpu.library import (
    EVERYTHING,
    Attend,
    BlockPart,
    BlocksProduct,
    Library,
    RotateAndStore,
    library,
)

Floats = NDArray[np.float64]
HEAD_DIMS = (1, 3, 16, 32, 48, 64, 80, 128, 256)
GROUPS = (1, 2, 3, 4, 7, 8, 9, 16, 71)
BLOCK_SIZES = (1, 4, 7, 16, 32)
KINDS = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "MXFP4")


@dataclass
class Case:
    """A flat batch and what a layer wants. q, keys, values: float32, or bfloat16's upper halves."""

    q: NDArray[Any]
    keys: NDArray[Any]
    values: NDArray[Any]
    starts: NDArray[np.int32]
    lens: NDArray[np.int32]
    tables: NDArray[np.int32]
    window: int | None
    cap: float
    sinks: NDArray[np.float32] | None

    @property
    def is_bfloat16(self) -> bool:
        return self.q.dtype == np.uint16


def halves(x: Floats) -> NDArray[np.uint16]:
    """bfloat16 by cutting off: any number will do."""
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(x: NDArray[Any]) -> Floats:
    """float64 of float32, or of bfloat16's upper halves."""
    return ((x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x).astype(
        np.float64
    )


def any_case(rng: random.Random) -> Case:
    """Sequences of which some begin alike, in blocks all over an exactly large pool."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    d, kv_heads, group = rng.choice(HEAD_DIMS), rng.choice((1, 2, 3)), rng.choice(GROUPS)
    size, n = rng.choice(BLOCK_SIZES), rng.randint(1, 6)
    queries = [rng.choice((0, 1, 1, 2, 5, 17, 40)) for _ in range(n)]
    shared = rng.choice((0, 0, 3, 150))
    lens = [count + rng.choice((0, shared)) + rng.choice((0, 1, 30, 200, 600)) for count in queries]
    needed = sum(-(-length // size) for length in lens) + 1
    free = list(range(needed))
    rng.shuffle(free)
    prefix = [free.pop() for _ in range(min(shared // size, needed - 1))]
    tables = np.full((n, max(1, *(-(-length // size) for length in lens))), needed - 1, np.int32)
    for row, length in enumerate(lens):
        count = -(-length // size)
        kept = prefix[: rng.choice((0, len(prefix) // 2, len(prefix), len(prefix)))][:count]
        own = [free.pop() if free else rng.randrange(needed) for _ in range(count - len(kept))]
        tables[row, :count] = kept + own
    pool = (needed, size, kv_heads, d)
    stored = halves if rng.random() < 0.5 else lambda x: x.astype(np.float32)
    return Case(
        stored(numbers.standard_normal((sum(queries), kv_heads * group, d))),
        stored(numbers.standard_normal(pool)),
        stored(numbers.standard_normal(pool)),
        np.cumsum([0, *queries]).astype(np.int32),
        np.array(lens, np.int32),
        tables,
        rng.choice((None, None, 1, 5, 100)),
        rng.choice((0.0, 0.0, 5.0)),
        numbers.standard_normal(kv_heads * group).astype(np.float32)
        if rng.random() < 0.3
        else None,
    )


def attend(case: Case, lib: Library, threads: int = 2, shares: bool = True) -> NDArray[Any]:
    """By the library, in the case's dtype."""
    size, kv_heads, d = case.keys.shape[1:]
    tokens, heads = case.q.shape[:2]
    out = np.zeros((tokens, heads, d), case.q.dtype)
    plan = lib.make_plan(
        case.starts.ctypes.data, case.lens.ctypes.data, case.tables.ctypes.data,
        case.tables.shape[1], len(case.lens), size, heads // kv_heads,
        shares and case.window is None,
    )  # fmt: skip
    call = Attend(
        case.q.ctypes.data, case.keys.ctypes.data, case.values.ctypes.data, out.ctypes.data,
        None if case.sinks is None else case.sinks.ctypes.data,
        heads * d, d, size * kv_heads * d, kv_heads * d, d,
        EVERYTHING if case.window is None else case.window, d**-0.5, case.cap,
        heads, kv_heads, d, case.is_bfloat16, threads,
    )  # fmt: skip
    lib.attend(plan, byref(call))
    lib.free_plan(plan)
    return out


def expected(case: Case) -> Floats:
    """Sequence by sequence, in float64."""
    q, keys, values = wide(case.q), wide(case.keys), wide(case.values)
    group, size = q.shape[1] // keys.shape[2], keys.shape[1]
    out = np.zeros(q.shape)
    for row, length in enumerate(case.lens):
        start, end = case.starts[row : row + 2]
        if start == end:
            continue
        blocks = case.tables[row, : -(-length // size)]
        kept = (x[blocks].reshape(-1, *x.shape[2:])[:length] for x in (keys, values))
        k, v = (np.repeat(x, group, axis=1) for x in kept)
        scores = np.einsum("thd,khd->htk", q[start:end], k) * q.shape[2] ** -0.5
        if case.cap:
            scores = case.cap * np.tanh(scores / case.cap)
        at, key = np.arange(length - (end - start), length)[:, None], np.arange(length)
        hidden = key > at
        if case.window is not None:
            hidden |= key <= at - case.window
        scores[:, hidden] = -np.inf
        top = scores.max(-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        if case.sinks is not None:
            total += np.exp(case.sinks.astype(np.float64)[:, None, None] - top)
        out[start:end] = np.einsum("htk,khd->thd", weights / total, v)
    return out


def error(case: Case, got: NDArray[Any]) -> float:
    """Largest difference, in units of what the dtype rounds by."""
    rounding = 2.0**-8 if case.is_bfloat16 else 2.0**-20
    difference = np.abs(wide(got) - expected(case)) / (1 + np.abs(expected(case)))
    return float(difference.max(initial=0.0)) / rounding


def rows_of_a_layer(rng: random.Random, lib: Library) -> None:
    """The small operations on arrays of exactly their size; what they give is tested with PyTorch."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    rows, d = rng.randint(1, 5), rng.choice((1, 7, 64, 100))
    is_bfloat16 = rng.random() < 0.5

    def some(*shape: int) -> NDArray[Any]:
        x = numbers.standard_normal(shape)
        return halves(x) if is_bfloat16 else x.astype(np.float32)

    x, residual, weight, out = some(rows, d), some(rows, d), some(d), some(rows, d)
    both = (is_bfloat16, 1)
    lib.rms_norm(*(a.ctypes.data for a in (x, residual, weight, out)), rows, d, 1e-6, *both)
    gates = some(rows, 2 * d)
    lib.silu_mul(gates.ctypes.data, out.ctypes.data, rows, d, *both)
    heads, kv_heads, half = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, d // 2)
    q, k, v = some(rows, heads, d), some(rows, kv_heads, d), some(rows, kv_heads, d)
    keys, values = some(3, 4, kv_heads, d), some(3, 4, kv_heads, d)
    slots = numbers.permutation(12)[:rows].astype(np.int64)
    slots[0] = rng.choice((-1, slots[0]))
    positions = numbers.integers(0, 9, rows)
    tables = [numbers.standard_normal((9, half)).astype(np.float32) for _ in range(2)]
    call = RotateAndStore(
        *(a.ctypes.data for a in (q, keys, values, k, v, slots, positions, *tables)),
        heads * d, d, kv_heads * d, d, kv_heads * d, d, 4 * kv_heads * d, kv_heads * d, d,
        rows, heads, kv_heads, d, half, 4, is_bfloat16, 1,
    )  # fmt: skip
    lib.rotate_and_store(byref(call))


def blocks_product(rng: random.Random, lib: Library) -> None:
    """Products with blocks of a GGUF, and what is unpacked, on arrays of exactly their size."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    kind = GGMLQuantizationType[rng.choice(sorted(KINDS))]
    values, size = GGML_QUANT_SIZES[kind]
    rows, outputs, count = rng.choice((1, 3, 8, 20)), rng.choice((1, 8, 24, 40)), rng.choice((1, 3))
    inputs = count * values
    stored = (
        random_bytes(numbers, kind, outputs * count, 0.01).reshape(outputs, count * size).copy()
    )
    weight = quants.dequantize(stored, kind)
    tiles = np.zeros((-(-outputs // lib.lanes), count, lib.block_bytes(kind)), np.uint8)
    lib.arrange_blocks(stored.ctypes.data, tiles.ctypes.data, inputs, outputs, kind, 1)
    part = BlockPart(tiles.ctypes.data, outputs, kind)
    x = numbers.standard_normal((rows, inputs)).astype(np.float32)
    gain, bias = (numbers.standard_normal(n).astype(np.float32) for n in (inputs, outputs))
    out, wide = np.zeros((rows, outputs), np.float32), np.zeros((inputs, outputs), np.float32)
    which, some = np.array([outputs - 1, 0]), np.zeros((2, inputs), np.float32)
    call = BlocksProduct(
        ctypes.addressof(part), x.ctypes.data, gain.ctypes.data, bias.ctypes.data, None,
        out.ctypes.data, rows, inputs, outputs, 1e-5, 1, False, False, 1,
    )  # fmt: skip
    lib.blocks_product(byref(call))
    lib.blocks_numbers(byref(part), wide.ctypes.data, inputs, False, 1)
    lib.blocks_rows(byref(part), which.ctypes.data, some.ctypes.data, 2, inputs, False, 1)
    normed = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * gain
    sizes = np.abs(normed) @ np.abs(weight).T
    assert (np.abs(out - normed @ weight.T - bias) <= 1e-5 * (1 + sizes)).all()
    assert np.allclose(wide.T, weight, rtol=1e-5)
    assert np.allclose(some, weight[which], rtol=1e-5)


def main() -> None:
    flags, count = tuple(sys.argv[1].split()), int(sys.argv[2])
    lib = library(flags)
    rng = random.Random(0)
    worst = 0.0
    if sys.argv[3:] == ["short"]:  # what must be reported
        case = any_case(rng)
        case.lens[-1] += 10_000
        attend(case, lib)
    for _ in range(count):
        case = any_case(rng)
        worst = max(worst, error(case, attend(case, lib, threads=1)))
        rows_of_a_layer(rng, lib)
        blocks_product(rng, lib)
    print(f"{count} cases, at most {worst:.2f} roundings off")


if __name__ == "__main__":
    main()
