"""The operations between the products of a layer: norms, activation, rotation. Labs 9 and 14."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.bench.kernels.case import (
    DTYPE,
    Case,
    Problem,
    compiled,
    copies_beyond_l2,
    method,
    randn,
)
from yaie.parts import Parts

EPS = 1e-6
HEADS, KV_HEADS, DIM = 32, 8, 128
CONTEXT = 16384
CHECKED = 64
SIZE = DTYPE.itemsize
GOALS = ("3,600", "3,950", "4,150", "3,600")


def cases() -> list[Case]:
    """Of a prefill step and of a decode step."""
    found = []
    for rows in (8192, 256):
        norm = f"{rows}x4096", f"{rows:,} x 4,096", "GB/s"
        silu = f"{rows}x14336", f"{rows:,} x 14,336", "GB/s"
        turn = f"{rows}_tokens", f"{rows:,} tokens, 32 + 8 heads", "GB/s"
        token = DIM * SIZE
        goals = GOALS if rows == 8192 else ("",) * len(GOALS)
        found += [
            Case("rms_norm", *norm, 2 * rows * 4096 * SIZE, partial(_norm, rows), goals[0]),
            Case("fused_add_rms_norm", *norm, 4 * rows * 4096 * SIZE, partial(_add_norm, rows),
                 goals[1]),
            Case("silu_mul", *silu, 3 * rows * 14336 * SIZE, partial(_silu, rows), goals[2]),
            Case("rope", *turn, 2 * rows * (HEADS + KV_HEADS) * token, partial(_rope, rows),
                 goals[3]),
            Case("rope_and_store", *turn, 2 * rows * (HEADS + 2 * KV_HEADS) * token,
                 partial(_rope_and_store, rows)),
        ]  # fmt: skip
    return found


def _ours(parts: Parts, name: str) -> dict[str, Any]:
    return {
        "triton": method(parts, "triton_ops", "LayerKernels", name),
        "cuda": method(parts, "cuda_ops", "LayerKernels", name),
        "torch": method(parts, "transformer_ops", "TransformerOps", name),
    }


def _rows(*tensors: Tensor) -> list[Tensor]:
    """The first and last rows, which are checked."""
    return [torch.cat([t[:CHECKED], t[-CHECKED:]]) for t in tensors]


def _plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _plain_add_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    residual += x
    x.copy_(_plain_norm(residual, weight, eps))
    return x, residual


def _norm_in_float64(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


def _norm(rows: int, parts: Parts) -> Problem:
    def flashinfer() -> Any:
        from flashinfer.norm import rmsnorm

        return rmsnorm

    weight = randn(4096)
    count = copies_beyond_l2(2 * rows * 4096 * SIZE)
    return Problem(
        sets=[(randn(rows, 4096), weight, EPS) for _ in range(count)],
        runs={
            **_ours(parts, "rms_norm"),
            "F.rms_norm": lambda: lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
            "torch.compile": compiled(_plain_norm),
            "flashinfer": flashinfer,
        },
        picked=lambda out: _rows(out),
        expected=lambda x, w, eps: [_norm_in_float64(_rows(x)[0], w, eps)],
    )


def _add_norm(rows: int, parts: Parts) -> Problem:
    def flashinfer() -> Any:
        from flashinfer.norm import fused_add_rmsnorm

        def run(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
            fused_add_rmsnorm(x, residual, weight, eps)
            return x, residual

        return run

    def expected(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Iterable[Tensor]:
        total = torch.add(*_rows(x, residual))
        return [_norm_in_float64(total, weight, eps), total.double()]

    weight = randn(4096)
    count = copies_beyond_l2(2 * rows * 4096 * SIZE)
    return Problem(
        sets=[(randn(rows, 4096), randn(rows, 4096), weight, EPS) for _ in range(count)],
        runs={
            **_ours(parts, "fused_add_rms_norm"),
            "torch.compile": compiled(_plain_add_norm),
            "flashinfer": flashinfer,
        },
        picked=lambda out: _rows(*out),
        expected=expected,
        in_place=True,
    )


def _plain_silu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def _silu(rows: int, parts: Parts) -> Problem:
    def flashinfer() -> Any:
        from flashinfer.activation import silu_and_mul

        return silu_and_mul

    count = copies_beyond_l2(3 * rows * 14336 * SIZE)
    return Problem(
        sets=[(randn(rows, 2 * 14336),) for _ in range(count)],
        runs={
            **_ours(parts, "silu_mul"),
            "torch.compile": compiled(_plain_silu),
            "flashinfer": flashinfer,
        },
        picked=lambda out: _rows(out),
        expected=lambda x: [_plain_silu(_rows(x)[0].double())],
    )


def _tables() -> tuple[Tensor, Tensor]:
    frequencies = 10000 ** -(torch.arange(0, DIM, 2) / DIM)
    angles = torch.outer(torch.arange(CONTEXT).float(), frequencies)
    return angles.cos(), angles.sin()


def _turn(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[positions, None], sin[positions, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _plain_rope(
    q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    for x in (q, k):
        x.copy_(_turn(x.float(), positions, cos, sin))
    return q, k


def _qkv(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one product, as a layer has them."""
    fused = randn(tokens, (HEADS + 2 * KV_HEADS) * DIM).unflatten(1, (-1, DIM))
    q, k, v = fused.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    return q, k, v


def _positions(tokens: int) -> Tensor:
    """Of a decode step all over the context, of a prompt from its start."""
    if tokens < 1024:
        return torch.randperm(CONTEXT)[:tokens]
    return torch.arange(tokens)


def _rope(tokens: int, parts: Parts) -> Problem:
    cos, sin = _tables()

    def flashinfer() -> Any:
        from flashinfer.rope import apply_rope_with_cos_sin_cache_inplace

        table = torch.cat([cos, sin], dim=-1)

        def run(
            q: Tensor, k: Tensor, positions: Tensor, _cos: Tensor, _sin: Tensor
        ) -> tuple[Tensor, Tensor]:
            apply_rope_with_cos_sin_cache_inplace(
                positions, q.flatten(1), k.flatten(1), DIM, table, True
            )
            return q, k

        return run

    def expected(
        q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> Iterable[Tensor]:
        (rows,) = _rows(positions)
        return [_turn(x.double(), rows, cos.double(), sin.double()) for x in _rows(q, k)]

    count = copies_beyond_l2(tokens * (HEADS + 2 * KV_HEADS) * DIM * SIZE)
    positions = _positions(tokens)
    return Problem(
        sets=[(*_qkv(tokens)[:2], positions, cos, sin) for _ in range(count)],
        runs={
            **_ours(parts, "rope"),
            "torch.compile": compiled(_plain_rope),
            "flashinfer": flashinfer,
        },
        picked=lambda out: _rows(*out),
        expected=expected,
        in_place=True,
    )


def _rope_and_store(tokens: int, parts: Parts) -> Problem:
    cos, sin = _tables()
    positions = _positions(tokens)
    slots = torch.randperm(tokens)

    def plain(*arguments: Tensor) -> tuple[Tensor, ...]:
        q, k, v, positions, cos, sin, keys, values, slots = arguments
        _plain_rope(q, k, positions, cos, sin)
        keys.flatten(0, 1).index_copy_(0, slots, k)
        values.flatten(0, 1).index_copy_(0, slots, v)
        return q, keys, values

    def ours(lab: str) -> Any:
        def make() -> Any:
            kernel = method(parts, lab, "LayerKernels", "rope_and_store")()

            def run(*arguments: Tensor) -> tuple[Tensor, ...]:
                kernel(*arguments)
                return arguments[0], arguments[6], arguments[7]

            return run

        return make

    def expected(*arguments: Tensor) -> Iterable[Tensor]:
        q, k, v, positions, cos, sin, *_ = arguments
        (rows,) = _rows(positions)
        q, k, v = (x.double() for x in _rows(q, k, v))
        turned = [_turn(x, rows, cos.double(), sin.double()) for x in (q, k)]
        return [*turned, v]

    def picked(out: tuple[Tensor, ...]) -> Iterable[Tensor]:
        q, keys, values = out
        (rows,) = _rows(slots)
        return [*_rows(q), keys.flatten(0, 1)[rows], values.flatten(0, 1)[rows]]

    def pool() -> Tensor:
        return torch.zeros(tokens // 16, 16, KV_HEADS, DIM, dtype=DTYPE)

    count = copies_beyond_l2(tokens * (HEADS + 4 * KV_HEADS) * DIM * SIZE)
    return Problem(
        sets=[(*_qkv(tokens), positions, cos, sin, pool(), pool(), slots) for _ in range(count)],
        runs={"triton": ours("triton_ops"), "cuda": ours("cuda_ops"), "torch": lambda: plain},
        picked=picked,
        expected=expected,
        in_place=True,
    )
